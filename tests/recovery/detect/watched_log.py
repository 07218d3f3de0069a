"""Runs a whole log through the detector, for the tests that look at its findings."""

from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import LineSplitter


def watch(text):
    """Return the detector after a whole log, and all its findings."""
    detector, splitter = Detector(), LineSplitter()
    data = text if isinstance(text, bytes) else text.encode()
    found = [fault for line in [*splitter.feed(data), *splitter.flush()] for fault in detector.feed(line)]
    return detector, found + detector.finish()


def kinds(text):
    return [fault.kind for fault in watch(text)[1]]


def now(text):
    fault = watch(text)[0].first_fault(ended=False)
    return fault and fault.kind


def at_end(text):
    fault = watch(text)[0].first_fault(ended=True)
    return fault and fault.kind


def steps(losses, start=0, **more):
    extra = "".join(f" {name}={value}" for name, value in more.items())
    return "".join(f"rung| step step={start + n} loss={loss}{extra}\n" for n, loss in enumerate(losses))


def healthy(count, start=0):
    return steps([round(4 - n / 1000, 4) for n in range(count)], start)
