"""Fake hosts in memory, to test the controller's logic: order, leases, time. Real hosts are in tests/fleet."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.model.paths import AttemptPaths, HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.context import Clock
from rung.runner.controller.controller import Controller
from rung.runner.engines.process import ProcessEngine
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.hosts.this_machine import HERE
from rung.runner.launch.submit import submit
from rung.runner.seams.engine import Engine, FileEntry, Observation, Presence, Request
from rung.runner.state.store import Store
from tests import pace

IMAGE = f"train@sha256:{'0' * 64}"
CARDS = {"TITANRTX": ("NVIDIA TITAN RTX", (7, 5)), "P100": ("Tesla P100-PCIE-16GB", (6, 0))}
CARDS |= {"A100": ("NVIDIA A100-SXM4-40GB", (8, 0))}


@dataclass
class PretendEngine:
    """A fake engine of a host. Attempts run until the test ends them; every call is recorded."""

    host: str
    gpus: tuple[Gpu, ...]
    away: bool = False
    refuses: str = ""
    breaks: Exception | None = None
    # Why it cannot work on files, though it answers.
    no_files: str = ""
    # Whether the code inside its jobs reports that it can set knobs.
    has_hands: bool = True
    incompatibilities: dict[str, str] = field(default_factory=dict)
    foreign_processes: dict[str, str] = field(default_factory=dict)
    there: dict[str, Observation] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    # The checkpoints by the name of their folder, and the names that were moved.
    files: dict[str, list[FileEntry]] = field(default_factory=dict)
    moved: list[tuple[str, ...]] = field(default_factory=list)
    # What the verifier says about a checkpoint, by its name.
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    # What an attempt writes when it is asked for its stacks.
    stacks: bytes = b""
    # The machine that a site chooses for an attempt, with all its GPUs.
    node: str | None = None

    def _reach(self, what: str, name: str) -> None:
        if self.away:
            raise HostUnreachable(f"{self.host}: no answer")
        self.calls.append((what, name))
        if self.breaks is not None:
            raise self.breaks

    @staticmethod
    def key(paths: AttemptPaths) -> str:
        return f"{paths.job_id}/{paths.number}"

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        name = self.key(request.paths)
        self._reach("start", name)
        if self.refuses:
            raise EngineError(f"{self.host}: {self.refuses}")
        assert name not in self.there, f"{name} was started twice"
        given = self.gpus if self.node else ()
        self.there[name] = Observation(Presence.RUNNING, started_at=1.0, node=self.node, gpus=given)
        self.requests[name] = request
        if request.env.get("RUNG_MODE") not in ("flags", "watch") and self.has_hands:
            self.append_log(name, b"rung| hands torch=2.9.0 python=3.11.7\n")
        self.append_log(name, b"step 1 loss 2.0\n")

    def observe(self, paths: AttemptPaths) -> Observation:
        self._reach("observe", self.key(paths))
        return self.there.get(self.key(paths), Observation(Presence.ABSENT))

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        name = self.key(paths)
        self._reach("stop", name)
        paths.folder.mkdir(parents=True, exist_ok=True)
        paths.stop.touch()  # as real engines mark that they have sent the signal
        if name in self.there and self.there[name].presence in (Presence.RUNNING, Presence.WAITING):
            self.there[name] = Observation(Presence.ENDED, None, 15, started_at=1.0)

    def ask_for_stacks(self, paths: AttemptPaths) -> None:
        self._reach("stacks", self.key(paths))
        self.append_log(self.key(paths), self.stacks)

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        """Answer like the verifier in the job: every checkpoint is healthy, unless the test says otherwise."""
        self._reach("run", " ".join(argv))
        if not self.verdicts:
            return 1, "", "there is nothing to run"
        names = [Path(word).name for word in argv if Path(word).name in self.verdicts]
        return 0, "\n".join(json.dumps({"path": name, **self.verdicts[name]}) for name in names), ""

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        self._reach("list_files", request.job_id)
        if self.no_files:
            raise EngineError(f"{self.host}: {self.no_files}")
        return list(self.files.get(folder_name(request), ()))

    def move(self, request: Request, names: Sequence[str], aside: Path) -> None:
        self._reach("move", str(aside))
        self.moved.append(tuple(names))
        there = self.files.pop(folder_name(request), [])
        self.files.setdefault(aside.name, []).extend(entry for entry in there if entry.name in names)
        self.files[folder_name(request)] = [entry for entry in there if entry.name not in names]

    def gpu(self) -> Gpu | None:
        return None

    def ensure_image(self, image: str, report: Callable[[str], None]) -> None:
        self._reach("ensure_image", image)

    def incompatibility(self, image: str, gpu: Gpu) -> str | None:
        return self.incompatibilities.get(gpu.type)

    def fetch(self, request: Request, entry: FileEntry, to: Path) -> Path:
        raise EngineError(f"{self.host}: there is nothing to copy")

    def copy(self, source: Request, request: Request, name: str, new_name: str | None = None) -> None:
        self._reach("copy", f"{name} to {folder_name(request)}{f' as {new_name}' if new_name else ''}")
        found = [entry for entry in self.files.get(folder_name(source), ()) if entry.name == name]
        renamed = [replace(entry, name=new_name or name) for entry in found]
        self.files.setdefault(folder_name(request), []).extend(renamed)

    def remove_residence(self, request: Request, residence: int) -> None:
        self._reach("remove", f"{request.job_id}/{residence}")
        self.files.pop(f"{residence}/{request.checkpoint_dir.name}", None)

    def deliver(self, request: Request, file: Path) -> None:
        self._reach("deliver", file.name)

    def sweep(self) -> int:
        self._reach("sweep", "")
        return 0

    def close(self) -> None: ...

    # Called by tests

    def append_log(self, name: str, text: bytes) -> None:
        log = self.requests[name].paths.log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            stream.write(text)

    def save(self, name: str, *steps: int, at: float = 1.0) -> None:
        """Let an attempt save healthy checkpoints, and report them."""
        for step in steps:
            file = f"step_{step}.pt"
            self.files.setdefault(folder_name(self.requests[name]), []).append(FileEntry(file, 10, at + step))
            self.verdicts[file] = {"verdict": "healthy", "step": step, "detail": ""}
            self.append_log(name, f"rung| saved step={step} file={file}\nstep {step} loss 1.0\n".encode())

    def end(self, name: str, code: int = 0) -> None:
        self.there[name] = replace(self.there[name], presence=Presence.ENDED, exit_code=code)

    def lose(self, name: str) -> None:
        """Cut the power under an attempt: nothing shows how it ended."""
        self.there[name] = replace(self.there[name], presence=Presence.LOST, detail="the host was restarted")

    def running(self) -> list[str]:
        return [name for name, seen in self.there.items() if seen.presence is Presence.RUNNING]


def folder_name(request: Request) -> str:
    """Return the name of an attempt's checkpoint folder; every residence after the first has its own."""
    residence = request.container.residence if request.container else 1
    return request.checkpoint_dir.name if residence == 1 else f"{residence}/{request.checkpoint_dir.name}"


class PretendEngines:
    def __init__(self, hosts: Mapping[str, Sequence[str]]) -> None:
        self.local = ProcessEngine()
        self.hosts = [Host(name, name, groups=tuple(kind.lower() for kind in kinds)) for name, kinds in hosts.items()]
        self.made = {name: PretendEngine(name, _gpus(name, kinds)) for name, kinds in hosts.items()}
        # The GPUs of this machine.
        self.gpus_here: tuple[Gpu, ...] = ()

    def on(self, host: str) -> PretendEngine:
        if host not in {each.name for each in self.hosts}:
            raise HostUnreachable(f"{host} is not in the list of hosts any more")
        return self.made[host]

    def of(self, attempt: Attempt) -> Engine:
        return self.on(attempt.host) if attempt.is_remote else self.local

    def remote(self, host: str) -> Any:
        return None

    def survey(self, host: Host) -> Report:
        engine = self.made[host.name]
        if engine.away:
            return Report(host, away=f"{host.name}: no answer")
        states = tuple(
            GpuState(
                gpu,
                foreign_processes=(engine.foreign_processes[gpu.uuid],) if gpu.uuid in engine.foreign_processes else (),
            )
            for gpu in engine.gpus
        )
        return Report(host, engine="20.10", gpus=states)

    def survey_here(self) -> Report:
        return Report(HERE, engine="processes", gpus=tuple(GpuState(gpu) for gpu in self.gpus_here))

    def job_ended(self, job_id: str) -> None: ...

    def close(self) -> None: ...


def _gpus(host: str, kinds: Sequence[str]) -> tuple[Gpu, ...]:
    return tuple(Gpu(CARDS[kind][0], CARDS[kind][1], i, f"GPU-{host}-{i}", 40 << 30) for i, kind in enumerate(kinds))


class World:
    """A controller with fake hosts and two clocks that the test moves: the one on the wall, and the steady one."""

    def __init__(self, folder: Path, hosts: Mapping[str, Sequence[str]]) -> None:
        self.folder, self.now, self.steady = folder, 1000.0, 50.0
        self.store = Store(folder / "rung.db")
        self.engines = PretendEngines(hosts)
        self.controller = self._controller()
        # What a turn is; a test may put something around it.
        self.take_turn: Callable[[], object] = lambda: self.controller.turn()

    def _controller(self) -> Controller:
        clock = Clock(lambda: self.now, lambda: self.steady, lambda seconds: None)
        return Controller(self.store, self.engines, HomePaths(self.folder), {}, clock)

    def restart(self) -> None:
        """Kill the controller and start another one on the same store."""
        self.controller._context.tasks.close()
        self.steady = 7.0  # another process, or another boot: its steady clock says nothing about the earlier one's
        self.controller = self._controller()

    def submit(self, name: str, *requests: Any, **fields: Any) -> str:
        recovery = {"infra_retries": 5, **fields.pop("recovery", {})}
        resources = {"gpu": list(requests), **fields.pop("resources", {})}
        spec = {"name": name, "run": "x", "image": IMAGE, "recovery": recovery, **fields}
        job_spec = JobSpec.model_validate({**spec, "resources": resources})
        return submit(self.store, job_spec, self.folder, at=self.now).id

    def engine(self, host: str) -> PretendEngine:
        return self.engines.made[host]

    def turn(self, times: int = 1) -> None:
        """Run the controller's loop; after each turn all tasks finish and the clock moves on."""
        for _ in range(times):
            self.take_turn()
            pending = [task.future for task in self.controller._context.tasks._tasks.values()]
            patience = pace.Patience(60)
            while concurrent.futures.wait(pending, timeout=1).not_done:
                assert not patience.is_over(), "a task did not finish"
            self.pass_time(1.0)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.steady += seconds

    def set_wall_clock(self, by: float) -> None:
        """Set the clock on the wall forward, or back; no time passes."""
        self.now += by

    def until(self, condition: Callable[[], Any], turns: int = 200) -> Any:
        for _ in range(turns):
            if value := condition():
                return value
            self.turn()
        shown = [(job.id, job.state.value, job.reason) for job in self.store.jobs()]
        raise AssertionError(f"the condition did not hold after {turns} turns: {shown}")

    def job(self, job_id: str) -> Job:
        return self.store.job(job_id)

    def last(self, job_id: str) -> Attempt:
        return self.store.attempts(job_id)[-1]

    def is_running(self, job_id: str) -> bool:
        return self.job(job_id).state is JobState.RUNNING

    def event_kinds(self, job_id: str) -> list[str]:
        return [event.kind for event in self.store.events(job_id)]

    def leases(self) -> dict[str, str]:
        return {lease.gpu: f"{lease.job_id}/{lease.attempt}" for lease in self.store.leases()}

    def close(self) -> None:
        self.controller.close()
        self.store.close()


Build = Callable[..., World]


@contextmanager
def worlds(folder: Path, **usual: list[str]) -> Iterator[Build]:
    """Give a function that makes a world of these hosts, or of those it is asked for; all are closed at the end."""
    made: list[World] = []

    def build(**hosts: list[str]) -> World:
        made.append(World(folder, hosts or usual))
        return made[-1]

    yield build
    for each in made:
        each.close()
