"""A collection of logs with what must be seen in each: this folder, another one like it, or a file of JSON lines."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rung.jobs.model.fault import Fault
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import LineSplitter

HERE = Path(__file__).parent
HEALTHY = "healthy"
# Others' words for ours.
LABELS = {"benign": HEALTHY, "none": HEALTHY, "": HEALTHY}
# Collections that know one kind of trouble with the device only.
KIN = {"cuda_fault": {"image_arch"}}


@dataclass(frozen=True)
class Case:
    """One log, the fault it shows, and others that may be told of it too."""

    name: str
    framework: str
    label: str
    data: bytes
    also: frozenset[str] = frozenset()
    expected: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What the detector made of a log."""

    detector: Detector
    listed: list[Fault]

    @property
    def kinds(self) -> set[str]:
        end = self.detector.first_fault(ended=True)
        return {fault.kind.value for fault in [*self.listed, *([end] if end else [])]}

    @property
    def first(self) -> str:
        """The fault Rung would act on, or the first one told where the run got past all of them."""
        fault = self.detector.first_fault(ended=True) or next(iter(self.listed), None)
        return fault.kind.value if fault else HEALTHY


def watch(chunks: Iterable[bytes]) -> Seen:
    """Run a whole log through a detector."""
    detector, splitter, listed = Detector(), LineSplitter(), []
    for chunk in chunks:
        for line in splitter.feed(chunk):
            listed += detector.feed(line)
    for line in splitter.flush():
        listed += detector.feed(line)
    return Seen(detector, listed + detector.finish())


def load(path: Path = HERE) -> list[Case]:
    """Return the cases of a folder with an expected.json, or of a file of JSON lines."""
    return list(_from_folder(path) if path.is_dir() else _from_records(path))


def _from_folder(folder: Path) -> Iterator[Case]:
    for name, expected in sorted(json.loads((folder / "expected.json").read_text()).items()):
        label, data = expected["fault"] or HEALTHY, (folder / name).read_bytes()
        yield Case(name, expected.get("framework", "other"), label, data, expected=expected)


def _from_records(path: Path) -> Iterator[Case]:
    for number, row in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not row.strip():
            continue
        record = json.loads(row)
        lines = record["lines"]
        text = lines if isinstance(lines, str) else "\n".join(lines)
        label = record.get("label") or ""
        label = LABELS.get(label, label)
        also = frozenset(record.get("also") or ()) | KIN.get(label, set())
        yield Case(record.get("id", f"line {number}"), record.get("framework", "other"), label, text.encode(), also)


def as_expected(case: Case, seen: Seen) -> str:
    """Say what is not as expected of a log, "" when all is."""
    if case.expected:
        told = outcome(seen)
        wrong = [key for key in told if key in case.expected and case.expected[key] != told[key]]
        return "; ".join(f"{key}: expected {case.expected[key]}, seen {told[key]}" for key in wrong)
    if case.label == HEALTHY:
        return f"a false alarm: {seen.first}" if seen.kinds else ""
    return "" if seen.kinds & ({case.label} | case.also) else f"expected {case.label}, seen {seen.first}"


def outcome(seen: Seen) -> dict:
    """Return what was seen of a log in the words of expected.json."""
    progress = seen.detector.progress
    now, end = seen.detector.first_fault(ended=False), seen.detector.first_fault(ended=True)
    return {
        "listed": [[fault.kind.value, fault.line, fault.step] for fault in seen.listed],
        "now": now and now.kind.value,
        "at_end": end and end.kind.value,
        "began": end and end.began,
        "progress": {
            "first": progress.first_step,
            "furthest": progress.furthest_step,
            "loss": str(progress.loss),
            "resumed": progress.resumed_step,
        },
    }
