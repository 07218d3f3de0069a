"""The faults of a cluster, beside those of the controller and the jobs: each of its parts has one at a time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests import pace
from tests.chaos.evidence import CANCELLED_THERE, FORGOTTEN, NODE_FAILED, PREEMPTED, REQUEUED, TIME_UP
from tests.chaos.faults import KINDS, Injector, Kinds
from tests.chaos.process_jobs import Live
from tests.chaos.slurm_jobs import SlurmJobs
from tests.slurm.cluster import Cluster

READY_SECONDS = 120.0
# A controller of a cluster that is killed forgets the jobs of its last seconds.
FORGETS_SECONDS = 30.0


@dataclass
class SiteInjector(Injector):
    """Injects the faults of a cluster, too."""

    longest_wait: ClassVar[float] = 8.0
    longest_pause: ClassVar[float] = 2.5

    cluster: Cluster = field(kw_only=True)
    # What has a fault now: nodes, and the controller of the cluster, which is the empty name.
    _busy: set[str] = field(default_factory=set)

    def kinds(self) -> Kinds:
        return SITE_KINDS

    @property
    def runs(self) -> SlurmJobs:
        assert isinstance(self.lab.runs, SlurmJobs)
        return self.lab.runs

    # The controller of the cluster

    def disturb_controller(self, what: str) -> bool:
        begin, end = CONTROLLER_FAULTS[what]
        if "" in self._busy:
            return False
        begun = time.time()

        def over() -> None:
            end(self.cluster)
            self._busy.discard("")
            if what == "cluster controller killed":
                self.lab.journal.hosts.append(("lab", FORGOTTEN, begun - FORGETS_SECONDS, time.time()))
            self.lab.note(f"{what} is over")

        self._busy.add("")
        begin(self.cluster)
        self._last(self.chance.choice((self.chance.uniform(0.3, 3), self.chance.uniform(5, 20))), over)
        return True

    # Nodes

    def fail_node(self) -> bool:
        """Let a node fail with all that it runs, until an administrator brings it back."""
        name = self._free_node()
        if name is None:
            return False
        begun = time.time()

        def over() -> None:
            # Only a reboot tells the cluster by itself that the jobs are gone, and this machine is not started again.
            self._as_administrator("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=chaos")
            self.cluster.start_node(name)
            pace.until(lambda: self._is_up(name), READY_SECONDS, f"{name} is up", every=0.5)
            self._node_is_back(name, NODE_FAILED, begun)

        self.cluster.kill_node(name)
        self._last(self.chance.choice((self.chance.uniform(0.3, 3), self.chance.uniform(5, 20))), over)
        return True

    def restart_daemon(self) -> bool:
        """Kill the daemon of a node alone: what it runs goes on."""
        name = self._free_node()
        if name is None:
            return False

        def over() -> None:
            self.cluster.start_node(name)
            self._node_is_back(name, "", 0.0)

        self.cluster.kill_daemon(name)
        self._last(self.chance.uniform(0.3, 8), over)
        return True

    def _free_node(self) -> str | None:
        free = [node.name for node in self.cluster.nodes if node.name not in self._busy]
        if not free:
            return None
        # A node that runs something, in most cases.
        used = [live.host for live in self.runs.live() if live.host in free]
        name = self.chance.choice(sorted(used) if used and self.chance.random() < 0.8 else free)
        self._busy.add(name)
        self.lab.note(f"the next fault is of {name}")
        return name

    def _node_is_back(self, name: str, kind: str, begun: float) -> None:
        self._busy.discard(name)
        if kind:
            self.lab.journal.hosts.append((name, kind, begun, time.time()))
        self.lab.note(f"{name} is back")

    def _as_administrator(self, *words: str) -> None:
        """Run a command until it works: the controller of the cluster may be away."""
        self._end_of_controller_fault()
        pace.until(lambda: self.runs.command(*words), READY_SECONDS, words, every=0.5)

    def _end_of_controller_fault(self) -> None:
        for each in [each for each in self._ends if each[1].__qualname__.startswith("SiteInjector.disturb_controller")]:
            self._ends.remove(each)
            each[1]()

    # Batch jobs

    def cancel_there(self) -> bool:
        return self._kill(CANCELLED_THERE, lambda live: self._tell(live, "scancel", "{}"))

    def requeue(self) -> bool:
        """Start a batch job a second time, although it was submitted with --no-requeue."""

        def again(live: Live) -> bool:
            number = self.runs.number_of(live)
            if number is None or not self.runs.command("scontrol", "update", f"JobId={number}", "Requeue=1"):
                return False
            # It would be held for two minutes.
            start = "scontrol", "update", f"JobId={number}", "StartTime=now"
            self._last(2.0, lambda: self.runs.command(*start))
            return self.runs.command("scontrol", "requeue", number)

        return self._kill(REQUEUED, again)

    def reach_limit(self) -> bool:
        """Let a run hang until it is at its time limit, which is now one minute."""

        def hang(live: Live) -> bool:
            told = self._tell(live, "scontrol", "update", "JobId={}", "TimeLimit=1")
            return told and self.runs.stop_job(live)

        return self._kill(TIME_UP, hang)

    def preempt(self) -> bool:
        """Let an urgent job push all others from a node."""
        name = self._free_node()
        if name is None:
            return False
        begun = time.time()
        words = ["sbatch", "--partition=urgent", "--exclusive", f"--nodelist={name}", "--output=/dev/null"]
        done = self.runs.command(*words, "--wrap=sleep 2")
        # It may wait until a node or a controller is back.
        self._last(15.0, lambda: self._node_is_back(name, PREEMPTED, begun))
        return done

    def _tell(self, live: Live, *words: str) -> bool:
        number = self.runs.number_of(live)
        return number is not None and self.runs.command(*(word.replace("{}", number) for word in words))

    def end_all(self) -> None:
        super().end_all()
        for node in self.cluster.nodes:
            pace.until(lambda name=node.name: self._is_up(name), READY_SECONDS, f"{node.name} is up", every=0.5)

    def _is_up(self, name: str) -> bool:
        """Tell whether a node is up. One that came back by itself needs no administrator."""
        self.runs.command("scontrol", "update", f"NodeName={name}", "State=RESUME")
        state = self.cluster.run("sinfo", "-h", "-n", name, "-p", "gpu", "-o", "%T", check=False).strip()
        return bool(state) and "down" not in state and "*" not in state


CONTROLLER_FAULTS: dict[str, tuple[Callable[[Cluster], object], Callable[[Cluster], object]]] = {
    "cluster controller killed": (Cluster.kill_controller, Cluster.start_controller),
    "cluster controller ended": (Cluster.end_controller, Cluster.start_controller),
    "cluster controller frozen": (
        lambda cluster: cluster.signal_controller(signal.SIGSTOP),
        lambda cluster: cluster.signal_controller(signal.SIGCONT),
    ),
}


def _controller_kind(what: str) -> Callable[[Any], bool]:
    return lambda injector: bool(injector.disturb_controller(what))


SITE_KINDS: Kinds = {
    **KINDS,
    "cancelled at the cluster": (4, SiteInjector.cancel_there),
    "requeued by an administrator": (2, SiteInjector.requeue),
    "time limit": (1, SiteInjector.reach_limit),
    "preempted": (3, SiteInjector.preempt),
    "node failed": (3, SiteInjector.fail_node),
    "node's daemon killed": (2, SiteInjector.restart_daemon),
    **{what: (2, _controller_kind(what)) for what in CONTROLLER_FAULTS},
}
