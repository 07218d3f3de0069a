"""Shows what a launch would run and where, and what each rung would change. Writes nothing."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rung.jobs.model.engine import DOCKER
from rung.jobs.model.host import Host
from rung.jobs.model.knobs import Precision
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.paths import job_id as make_id
from rung.jobs.model.terminal_text import clean
from rung.jobs.site.options import chosen_options
from rung.jobs.site.settings import Site
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.engines.docker.container_config import planned_config
from rung.runner.hosts.survey import Report
from rung.runner.hosts.this_machine import HERE
from rung.runner.launch.known_sites import refuse_nowhere
from rung.runner.launch.site_request import asked_of
from rung.runner.placement.bad_gpus import mark
from rung.runner.placement.host_pool import view_of
from rung.runner.placement.local_slots import leases_of
from rung.runner.placement.places import GpuKey, HostView, Placed
from rung.runner.preflight.check_job import planned_job, preview_request
from rung.runner.preflight.fit import preview_place
from rung.runner.preflight.rung_preview import LadderPreview, rung_changes
from rung.runner.preflight.several_hosts import NODE_RANK, NodePreview, node_lines, preview_nodes, runs_on_several
from rung.runner.preflight.slot import preview_slot
from rung.runner.preflight.trial_preview import trial_candidates, trial_lines
from rung.runner.seams.engine import Request
from rung.runner.state.home import refuse_shared_home
from rung.runner.state.next_attempt import Placement, asked_by_person
from rung.runner.state.store import Store

NOWHERE = "none now"


class LaunchPreview:
    """What a launch of a job would be."""

    def __init__(
        self,
        spec: JobSpec,
        origin: Path,
        paths: HomePaths,
        environ: Mapping[str, str],
        survey: Callable[[], Sequence[Report]],
    ) -> None:
        self._spec, self._waits = spec, ""
        self._site: Site | None = None
        refuse_shared_home(paths)
        store = Store(paths.store) if paths.store.exists() else None
        sequence = len(store.jobs(removed=True)) + 1 if store else 1
        job_id = make_id(spec.name, sequence)
        self._slot = None if spec.is_remote else preview_slot(spec, job_id, store, environ)
        hosts: list[Host] = []
        if self._slot is None:
            now, reports = time.time(), survey()
            hosts = [report.host for report in reports]
            found = {report.host: report.partitions for report in reports}
            refuse_nowhere(spec, [*found], found.__getitem__, "now")
            views = mark([view_of(report) for report in reports], store.bad_places(now) if store else (), now)
            placement = self._place(job_id, views, leases_of(store) if store else {})
        else:
            placement, self._waits = Placement(HERE.name, self._slot.gpus, engine=HERE.engine), self._slot.waits
        self.host = placement.host
        home = (paths, environ)
        self.request: Request = preview_request(spec, origin, home, sequence, placement)
        self._nodes: tuple[NodePreview, ...] = ()
        if runs_on_several(spec, placement, hosts):
            self._nodes = preview_nodes(spec, self.request, placement, hosts, store.store_id if store else None)
            # Its log is the one of all hosts.
            self.request = replace(self._nodes[0].request, paths=self.request.paths)
        self._job = job = planned_job(spec, sequence)
        self._ladder = LadderPreview(job, asked_by_person(job, (), (), placement), home, origin)

    def _place(self, job_id: str, views: Sequence[HostView], leases: Mapping[GpuKey, str]) -> Placement:
        answer = preview_place(self._spec, job_id, views, leases)
        if isinstance(answer, Placed):
            self._site = next(view.host.site for view in views if view.host.name == answer.host)
            return Placement(answer.host, answer.gpus, answer.image, engine=answer.engine, members=answer.members)
        self._waits = answer.reason
        image = self._spec.image
        first = image if isinstance(image, str) else next(iter((image or {}).values()), "")
        return Placement(NOWHERE, (), first, engine=DOCKER)

    def to_json(self) -> str:
        data: dict[str, Any] = {**self.request.to_dict(), "host": self.host, "waits": self._waits or None}
        container = self.request.container
        if container is not None:
            data |= {"image": container.image or None, "gpus": list(container.gpus), "ships": str(self.request.source)}
        if container is not None and self._site is None:
            data["container"] = planned_config(self.request)
        if self._nodes:
            data["nodes"] = [node.to_dict() for node in self._nodes]
        if self._site is not None:
            data["sbatch"] = chosen_options(self._site, asked_of(self._spec))
        if self._slot is not None:
            data |= {"slot": self._slot.text, "gpus": [gpu.uuid for gpu in self._slot.gpus]}
        data |= {"rungs": [rung.to_dict() for rung in self._ladder.rungs()], "resume": self._ladder.resume().to_dict()}
        ladder = {rung: note or changes for rung, (changes, note) in rung_changes(self._spec).items()}
        return json.dumps({**data, "ladder": ladder, "trials": trial_candidates(self._job)}, indent=2)

    def text(self) -> str:
        return "\n".join(clean(line) for line in self._lines())

    def _lines(self) -> Iterator[str]:
        request, container = self.request, self.request.container
        hosts = " and ".join(dict.fromkeys(node.host for node in self._nodes)) or self.host
        yield f"host  {hosts}{f': {self._waits}' if self._waits and self._slot is None else ''}"
        if self._slot is not None:
            yield f"slot  {self._slot.text}"
        if self._site is not None:
            yield f"ships {request.source}"
            yield f"start {self._site.start}"
            yield f"batch sbatch {shlex.join(chosen_options(self._site, asked_of(self._spec)))}"
        elif container is not None:
            yield f"image {container.image}"
            yield from node_lines(self._nodes) if self._nodes else [f"gpu   {', '.join(container.gpus) or 'none'}"]
            yield f"ships {request.source}"
            yield from (f"mount {volume.text}" for volume in container.volumes)
            yield f"limit shm {container.shm}"
            yield f"limit pids {container.pids}"
            if "memory" not in request.limits:
                yield "limit memory what the host has, less a reserve"
            yield f"net   {container.network}"
        if self._spec.recovery.gate == "before" and self._spec.knobs.knobs().precision is not Precision.FP32:
            yield "first its validation against FP32 (recovery.validate: before); in fp32 instead if that fails"
        yield f"cwd   {request.cwd}"
        yield f"run   {shlex.join(request.argv)}"
        yield f"log   {request.paths.log}"
        yield from (f"limit {name} {value}" for name, value in request.limits.items())
        for name, value in sorted(request.env.items()):
            more = f", up to {len(self._nodes) - 1} on the last host" if self._nodes and name == NODE_RANK else ""
            yield f"env   {name}={shlex.quote(value)}{more}"
        yield from (f"env   {name} (secret, its value is not shown)" for name in request.secrets)
        for path, keys in self.request.to_dict()["files"].items():
            yield from (f"file  {path}: {key} = {json.dumps(value)}" for key, value in keys.items())
        for rung in self._ladder.rungs():
            yield from rung.lines()
        yield from trial_lines(self._job)
        relaunch = list(self._ladder.resume().lines())[1:]
        if relaunch:
            yield "every relaunch goes on from the last healthy checkpoint:"
            yield from relaunch
