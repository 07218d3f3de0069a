"""Tests that lines taken at once leave the state, the faults and the curves of lines taken one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.recovery.monitors.fault_groups import FAILS_CLEAN_EXIT
from rung.recovery.series.thinning import Series
from rung.recovery.shapes import recall
from rung.runner.log_reading.state_codec import encode

CORPUS = sorted((Path(__file__).parents[2] / "corpus").glob("*.log"))
BAD = ("nan", "inf", "0.0", "1e9", "1e300", "-2.5")
OTHER = (
    *("", "saved", "RuntimeError: no", "eval: step 100 val_loss 2.345", "[rank1]: loss 3.0", "\u00e9 loss 1.0"),
    *("10%\r20%\r", "50/700 [00:01<00:02, 3.00it/s, loss=2.0]", "step,loss,lr", "rung| course number=2"),
    'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    x=1\nValueError: bad\nretrying\nonce',
    *(
        "Gradient overflow. Skipping step, reducing loss scale to 16384.0",
        "rung| knobs clip=1.0",
        *("rung| end updates=7", '  File "/x/torch/nn/modules/module.py", line 3, in forward'),
    ),
    *("step 3 loss 2.0 ppl 1e9", "rung| replay step=4 fp32=finite", "loss1 2.0 loss2 3.0", "ppl 12.0", "loss is nan"),
)
KINDS = (
    "step {n} loss {loss:.4f} lr {lr:.6g} grad_norm {norm}",
    "step {n} loss {loss:.6g} lr {lr:.3e}",
    "rung| step step={n} loss={loss:.6g} lr={lr:.6g} grad_norm={norm} scale={scale} skipped={skipped}",
    "rung| step step={n} loss={loss:.6g} kd_loss={term:.4g} lr=0.0001 skipped=0",
    "2026-11-19 12:00:{n:02d} INFO step={n} loss={loss:.4f} gnorm={norm}",
    "[12:00] step: {n} | loss: {loss:.4f} | {norm} tokens/s | {speed:.2f}it/s",
    "epoch {epoch} step {n} loss {loss:.4f} lr 1e-4",
    "iter {n}: loss {loss:.4f}, time {speed:.2f}ms, mfu 3.10%",
)


def training(seed: int) -> bytes:
    """Return a log with healthy, bad and rising numbers, and with other lines between."""
    dice, found, n, scale, epoch = random.Random(seed), [], 0, 65536.0, 0
    bad, other = dice.choice((0, 0, 0.003, 0.05)), dice.choice((0, 0, 0.01, 0.2))
    kind, noise, level = KINDS[seed % len(KINDS)], dice.choice((0.01, 0.1, 0.5)), dice.choice((2, 0.1, -1))
    begins, rise = dice.randrange(200, 2000), dice.choice((0, 0, 0.02))
    for count in range(dice.choice((400, 1500))):
        n += 1 if dice.random() > 0.003 else dice.choice((0, -50, 5))
        scale *= dice.choice((0.5, 2)) if dice.random() < 0.003 else 1
        epoch += count % 300 == 299
        loss = level * (1 + 2 / (1 + count / 100)) + noise * dice.gauss(0, 1) + rise * max(0, count - begins)
        values = {"lr": 1e-4 * min(1, count / 300), "norm": f"{dice.lognormvariate(0, 0.4):.3f}", "scale": scale}
        values |= {"speed": 1 + dice.random(), "term": dice.random() - 0.01, "skipped": int(dice.random() < bad)}
        line = kind.format(n=n, loss=loss, epoch=epoch, **values)
        found.append(line.replace(f"{loss:.4f}", dice.choice(BAD)) if dice.random() < bad else line)
        found += [dice.choice(OTHER)] if dice.random() < other else []
    return "\n".join(found).encode()


def read(data: bytes, sizes: random.Random, warning: EarlyWarning | None = None) -> dict[str, str]:
    """Return all that is known after a log that came in pieces."""
    series = Series()
    detector = Detector((), warning or EarlyWarning(), on_numbers=series.add, on_readings=series.add_many)
    scan, at = Scan(detector, latched=FAILS_CLEAN_EXIT), 0
    found = []
    while at < len(data):
        size = sizes.choice((40, 3000, 9000))
        found += scan.feed(data[at : at + size])
        at += size
    state = encode(scan, scan.outside())
    found += scan.finish()
    end = encode(scan, scan.outside())
    return {"faults": repr((found, scan.decided)), "state": state, "end": end, "curves": repr(series.rows)}


def both_ways(data: bytes, monkeypatch: pytest.MonkeyPatch, seed: int, warning: EarlyWarning | None = None) -> None:
    at_once = read(data, random.Random(seed), warning)
    with monkeypatch.context() as patch:
        patch.setattr("rung.recovery.detect.scan.FEWEST_ALIKE", 1 << 40)
        one_by_one = read(data, random.Random(seed), warning)
    for name, value in one_by_one.items():
        assert at_once[name] == value, name


@pytest.mark.parametrize("seed", range(48))
def test_lines_at_once_leave_what_lines_one_by_one_leave(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    both_ways(training(seed), monkeypatch, seed)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("limits", [{"patience": 1}, {"sigmas": 0.5, "patience": 3, "warm_up": 1, "rise": 0.01}])
def test_they_do_where_warnings_come_early(monkeypatch: pytest.MonkeyPatch, seed: int, limits: dict[str, int]) -> None:
    both_ways(training(seed), monkeypatch, seed, EarlyWarning.model_validate(limits))


@pytest.mark.parametrize("log", CORPUS[::4], ids=lambda path: path.stem)
def test_they_do_in_a_log_of_the_corpus(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    both_ways(log.read_bytes()[:100_000], monkeypatch, len(log.name))


@pytest.mark.parametrize("kind", KINDS)
def test_most_lines_of_a_healthy_training_are_taken_at_once(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    dice, single = random.Random(7), []
    lines = []
    for n in range(10, 4000):
        values = {"norm": f"{1 + dice.random():.3f}", "lr": 1e-4, "epoch": 1, "scale": 1024.0, "skipped": 0}
        loss, speed, term = 2 + 0.1 * dice.gauss(0, 1), 1 + dice.random(), dice.random()
        lines.append(kind.format(n=n, loss=loss, speed=speed, term=term, **values))
    # What other tests have taught is not known here.
    monkeypatch.setattr(recall._ALL, "shapes", {})
    take = Detector.feed_numbers
    monkeypatch.setattr(Detector, "feed_numbers", lambda self, line: (single.append(line), take(self, line))[1])
    read("\n".join(lines).encode(), random.Random(7))
    assert len(single) < len(lines) / 3


def test_readings_are_given_one_by_one_to_who_takes_no_more() -> None:
    data = "\n".join(f"step {n} loss {2 + n % 7 / 10:.4f}" for n in range(100, 900)).encode()
    taken: list[tuple[int, float | None]] = []
    scan = Scan(Detector(on_numbers=lambda step, reading: taken.append((step, reading.loss))))
    scan.feed(data)
    scan.finish()
    assert taken == [(n, round(2 + n % 7 / 10, 4)) for n in range(100, 900)]


@pytest.mark.parametrize("warning", [EarlyWarning(), None])
def test_steps_that_begin_again_with_an_epoch_are_counted_on(
    monkeypatch: pytest.MonkeyPatch, warning: EarlyWarning | None
) -> None:
    found = []
    for fewest in (4, 1 << 40):
        monkeypatch.setattr("rung.recovery.detect.scan.FEWEST_ALIKE", fewest)
        scan = Scan(Detector((), warning))
        for epoch in range(4):
            lines = [f"epoch {epoch} step {n} loss {2 + n % 7 / 10:.4f}\n" for n in range(100, 400)]
            scan.feed("".join(lines).encode())
        found.append(encode(scan, scan.outside()))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [KINDS[1], KINDS[2]])
@pytest.mark.parametrize("between", OTHER)
def test_what_comes_between_lines_is_followed_to_its_end(
    monkeypatch: pytest.MonkeyPatch, between: str, kind: str
) -> None:
    values = {"norm": "1.250", "lr": 1e-4, "scale": 1024.0, "skipped": 0}
    lines = [kind.format(n=n, loss=2 + n % 7 / 10, **values) for n in range(100, 324)]
    both_ways("\n".join([*lines[:200], between, *lines[200:]]).encode() + b"\n", monkeypatch, 7)


def test_a_message_on_lines_that_are_alike_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"step {n} loss {2 + n % 7 / 10:.4f}, gradient overflow, skipping step" for n in range(100, 500)]
    both_ways("\n".join(lines).encode() + b"\n", monkeypatch, 7)
