"""Measures what zero-edit costs in this version of Rung, beside another one on the same machine or alone.

python -m tests.bench.versions gpu OTHER     OTHER: the folder of the other version, with its `jobs/inside`
python -m tests.bench.versions cpu OTHER     on two cores
python -m tests.bench.versions gpu OTHER 0.003 120     only at 3 ms a step, for 120 seconds
python -m tests.bench.versions gpu - 0.003 240         this version alone

Each version trains in a process of its own. They take turns, one pair of blocks each: with and without zero-edit. The
blocks are short, because a machine is as fast as just before, and not as fast as half a second ago. Only torch and the
standard library are needed. It takes three to four minutes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench import gpu, inside
from tests.bench.switching import INSIDE, SETTLE, Switch, in_turns, overhead, records_in_a_file, start

ROOT = Path(__file__).parents[2]
SERVE, END = "--serve", "end"
ALONE = "-"
WARM_UP = 60
# The number of an update in its course: of the first ones each is reported, later every 32nd.
COURSES = {"every update reported": 100, "as in a long run": 20_000}
# So many updates from there on are as they are there: a multiple of all that happens every so many updates.
ALIKE = 512
# A multiple of the updates that share a copy from a GPU.
STEPS = 16
# Pairs of blocks of one course, before those of the other one.
ROUNDS = 4


class Case(NamedTuple):
    """A length of a step: how many steps a block has, how many seconds are spent on it, and in which courses."""

    device: str
    step: float
    steps: int
    seconds: float
    most: float
    courses: tuple[str, ...] = tuple(COURSES)


CASES = (
    Case("gpu", 0.025, STEPS, 80.0, 1.0, ("every update reported",)),
    Case("gpu", 0.003, STEPS, 60.0, 3.0),
    Case("cpu", 0.010, STEPS, 100.0, 1.0),
    Case("cpu", 0.003, STEPS, 80.0, 3.0),
)


def main() -> None:
    device, other, only = sys.argv[1], sys.argv[2], [float(each) for each in sys.argv[3:5]]
    beside = {} if other == ALONE else {"other": Path(other).resolve() / "jobs" / "inside"}
    versions = {**beside, "this": INSIDE}
    missing = [folder for folder in versions.values() if not (folder / "rung_inside").is_dir()]
    if missing:
        sys.exit(f"rung: there is no rung_inside in {missing[0]}")
    print(f"The cost of zero-edit on the {device}: other = {other}, this = {ROOT}", flush=True)
    for case in (each for each in CASES if each.device == device and each.step in (only[:1] or [each.step])):
        compare(case, versions, seconds=only[1] if only[1:] else case.seconds)


def compare(case: Case, versions: dict[str, Path], seconds: float) -> None:
    servers = {name: Server(case, folder) for name, folder in versions.items()}
    times: dict[str, dict[str, list[tuple[float, float]]]] = {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for course in case.courses:
            for name in [*servers] * ROUNDS:
                times.setdefault(course, {}).setdefault(name, []).append(servers[name].ask(course))
    told = [server.end() for server in servers.values()]
    first = servers["this"].about
    wait = f"; without zero-edit the host waits {first['wait']:.2f} ms for the GPU" if "wait" in first else ""
    print(f"about {1000 * case.step:g} ms a step, on {first['where']}{wait}; at most {case.most:g} % are wanted")
    for course, of_versions in times.items():
        for name, pairs in of_versions.items():
            report(case, f"  {course:<21}  {name:<5}", pairs)
        if len(servers) == 1:
            continue
        # As if one version were the training without zero-edit: what one pair has more than the other one of its turn.
        shares = zip(*([one / without for one, without in pairs] for pairs in of_versions.values()), strict=True)
        more, low, high = overhead([(1 + this - before, 1.0) for before, this in shares])
        print(f"  {course:<21}  this against other: {more:+.2f} points ({low:+.2f} to {high:+.2f})")
    print(f"  records written: {', '.join(map(str, told))}", flush=True)


def report(case: Case, title: str, pairs: list[tuple[float, float]]) -> None:
    share, low, high = overhead(pairs)
    one = median(without for _, without in pairs) / case.steps
    print(
        f"{title}  {1000 * one:6.2f} ms  {share:+.2f} % ({low:+.2f} to {high:+.2f}),"
        f" {one * share * 1e4:4.0f} us an update; {len(pairs)} pairs"
    )


class Server:
    """A process that trains with one version, one pair of blocks whenever it is asked."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.versions", SERVE, str(CASES.index(case))],
            cwd=ROOT,
            env={**os.environ, "RUNG_BENCH_INSIDE": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # The next one starts only then, so that they do not choose their batches against each other.
        self.about: dict[str, Any] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("rung: the training of one version has failed")
        return json.loads(line)

    def ask(self, course: str) -> tuple[float, float]:
        """Train a pair of blocks, and return the times with and without zero-edit."""
        with_us, without = self._ask(course)
        return with_us, without

    def end(self) -> int:
        """Let it end, and return how many records it has written."""
        records = self._ask(END)
        self._process.wait()
        return int(records)

    def _ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._answer()


def serve(case: Case) -> None:
    start()
    answer = sys.stdout
    with records_in_a_file() as lines:
        step, model, where = on_gpu(case) if case.device == "gpu" else on_cpu(case)
        block = timed(case, step)
        for _ in range(WARM_UP):
            step()
        switch, chance, place = Switch(model), random.Random(1), dict.fromkeys(COURSES, 0)
        about = {"where": where, **(waited(step, switch) if case.device == "gpu" else {})}
        print(json.dumps(about), file=answer, flush=True)
        for line in sys.stdin:
            if line.strip() == END:
                break
            course = line.strip()
            go_to(COURSES[course] + place[course])
            place[course] = (place[course] + SETTLE + case.steps) % ALIKE
            print(json.dumps(in_turns(switch, step, block, 1, chance)[0]), file=answer, flush=True)
        records = sum(line.startswith("rung| step") for line in lines())
        notes = [line for line in lines() if line.startswith("rung| note")]
    if notes:
        sys.exit(f"rung: the code inside has failed: {notes[0]}")
    print(json.dumps(records), file=answer, flush=True)


def go_to(number: int) -> None:
    """Let the newest update be this one of its course."""
    from rung_inside.zero_edit import run_state
    from rung_inside.zero_edit.telemetry.step_records import recorder

    recorder.courses.start = run_state.step() - number


def on_gpu(case: Case) -> tuple[Callable[[], None], Any, str]:
    import torch

    torch.manual_seed(0)
    training = gpu.training(next(size for size in gpu.SIZES if size.step == case.step))
    return training.step, training.model, torch.cuda.get_device_name()


def on_cpu(case: Case) -> tuple[Callable[[], None], Any, str]:
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(0)
    step, model = inside.training(amp=True, step_time=case.step)
    return step, model, "two cores"


def timed(case: Case, step: Callable[[], None]) -> Callable[[], float]:
    if case.device == "gpu":
        return lambda: gpu.run(step, case.steps)
    return lambda: inside.block(step, case.steps)


def waited(step: Callable[[], None], switch: Switch) -> dict[str, float]:
    """Return how many milliseconds the host waits at the scaler's step: Python before it is free for so long."""
    import torch

    switch.turn(on=False)
    waits, own = [], torch.amp.GradScaler.step

    def waiting(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        torch.cuda.synchronize()
        waits.append(time.perf_counter() - began)
        return own(*args, **kwargs)

    torch.amp.GradScaler.step = waiting  # type: ignore[method-assign]
    for _ in range(WARM_UP):
        step()
    torch.amp.GradScaler.step = own  # type: ignore[method-assign]
    switch.turn(on=True)
    return {"wait": 1000 * median(waits)}


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve(CASES[int(sys.argv[2])])
    else:
        main()
