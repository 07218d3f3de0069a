"""Reads a collection of logs with their expected findings: this folder, a similar one, or a file of JSON lines."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rung.jobs.model.fault import Fault
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import LineSplitter

HERE = Path(__file__).parent
HEALTHY = "healthy"
# Labels of other collections, and ours for them.
LABELS = {"benign": HEALTHY, "none": HEALTHY, "": HEALTHY}
# Some collections have only one label for faults of the device.
KIN = {"cuda_fault": {"image_arch"}}


@dataclass(frozen=True)
class Case:
    """One log, the fault it shows, and others that may be found in it too."""

    name: str
    framework: str
    label: str
    data: bytes
    also: frozenset[str] = frozenset()
    expected: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """The findings of the detector in one log."""

    detector: Detector
    listed: list[Fault]

    @property
    def kinds(self) -> set[str]:
        end = self.detector.first_fault(ended=True)
        return {fault.kind.value for fault in [*self.listed, *([end] if end else [])]}

    @property
    def first(self) -> str:
        """The fault that Rung acts on, or the first finding if the run recovered from all of them."""
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
    """Return what differs from the expected findings of a log; "" if nothing does."""
    if case.expected:
        found = outcome(seen)
        wrong = [key for key in found if key in case.expected and case.expected[key] != found[key]]
        return "; ".join(f"{key}: expected {case.expected[key]}, seen {found[key]}" for key in wrong)
    if case.label == HEALTHY:
        return f"a false alarm: {seen.first}" if seen.kinds else ""
    return "" if seen.kinds & ({case.label} | case.also) else f"expected {case.label}, seen {seen.first}"


def outcome(seen: Seen) -> dict:
    """Return the findings in a log with the keys of expected.json."""
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
