# ruff: noqa: E501
"""Tests that any log is read exactly, without an exception, and in time that grows with its length."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.logs.line_reader import MAX_READ, LineReader, read
from rung.recovery.logs.lines import Line
from rung.recovery.logs.progress import ProgressTracker
from rung.recovery.logs.unwrap import Unwrapper
from rung.recovery.validation.run_figures import FigureReader

number = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**30), 10**30) | st.floats(-1, 1)
steps = st.integers(0, 10**12)
written = st.sampled_from([repr, "{:.6e}".format, "{:.4f}".format, "{:.3g}".format, "{:E}".format])
# Every way of writing a number under its name, with the names that the formats use.
TEMPLATES = {
    "pairs": "step={step} loss={loss} lr={lr} grad_norm={norm} loss_scale={scale}",
    "colons": "Step: {step}, Loss: {loss}, LR: {lr}, Grad Norm: {norm}, Scale: {scale}",
    "bars": "| epoch 003 | loss {loss} | num_updates {step} | lr {lr} | gnorm {norm} | loss_scale {scale}",
    "blanks": "step {step} loss {loss} lr {lr} gnorm {norm} scale {scale}",
    "JSON": '{{"step": {step}, "loss": {loss}, "lr": {lr}, "grad_norm": {norm}, "loss_scale": {scale}}}',
    "JSON, text": '{{"num_updates": "{step}", "loss": "{loss}", "lr": "{lr}", "gnorm": "{norm}", "loss_scale": "{scale}"}}',
    "Python": "{{'step': {step}, 'loss': {loss}, 'learning_rate': {lr}, 'grad_norm': {norm}, 'loss_scale': {scale}}}",
    "Megatron": " iteration {step}/ 99 | learning rate: {lr} | lm loss: {loss} | loss scale: {scale} | grad norm: {norm} |",
    "detectron2": "[03/01 10:00:00 d2.utils.events]:  eta: 0:12:30  iter: {step}  total_loss: {loss}  lr: {lr}"
    "  grad_norm: {norm}  loss_scale: {scale}",
    "logging": "2026-03-01 10:00:00,123 - train - INFO - step {step} | loss: {loss} | lr: {lr} | grad_norm: {norm}"
    " | scale: {scale}",
    "logfmt": 'ts=2026-03-01T10:00:00Z msg="a step" step={step} loss={loss} lr={lr} grad_norm={norm} loss_scale={scale}',
    "tensors": "step={step} loss=tensor({loss}, grad_fn=<MeanBackward0>) lr=[{lr}] grad_norm=tensor({norm}) scale={scale}",
    "rank": "[rank7]: step={step} loss={loss} lr={lr} grad_norm={norm} scale={scale}",
    "record": "rung| step step={step} loss={loss} lr={lr} grad_norm={norm} scale={scale}",
}


def same(one, other):
    return one == other or (math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize("name", TEMPLATES)
@given(step=steps, loss=number, lr=number, norm=number, scale=number, show=written)
def test_printed_numbers_are_read_back(name, step, loss, lr, norm, scale, show):
    printed = {key: show(value) for key, value in (("loss", loss), ("lr", lr), ("norm", norm), ("scale", scale))}
    # No training prints a number of more than 40 digits.
    if max(map(len, printed.values())) > 40:
        return
    reading = read(TEMPLATES[name].format(step=step, **printed))
    assert reading.step == step
    assert same(reading.loss, float(printed["loss"]))
    assert same(reading.lr, float(printed["lr"]))
    assert same(reading.grad_norm, float(printed["norm"]))
    assert same(reading.scale, float(printed["scale"]))


@given(step=st.integers(1, 10**9), total=st.integers(1, 10**9), loss=number, speed=st.floats(0.01, 9999))
def test_a_bar_is_read_back(step, total, loss, speed):
    rate = f"{speed:.2f}"
    reading = read(f"Training:  5%|▌     | {step}/{total} [00:33<53:52, {rate}it/s, loss={loss}]")
    assert (reading.step, reading.total, reading.throughput) == (step, total, {"it/s": float(rate)})
    assert same(reading.loss, float(loss))


@given(st.lists(st.tuples(steps, number, number), min_size=1, max_size=5))
def test_rows_of_a_table_are_read_back(rows):
    reader = LineReader()
    assert reader.read("epoch,step,train_loss,lr") is None
    for step, loss, lr in rows:
        reading = reader.read(f"0,{step},{loss},{lr}")
        assert reading.step == step
        assert same(reading.loss, float(loss)) and same(reading.lr, float(lr))


PIECES = ["loss", "step", "epoch", "=", ":", " ", "|", "[", "]", "(", "{'", "'", ",", "/", "nan", "inf", "-", "1", "2.5", "1e5", "%|",
          "it/s", "ms", "━", "•", "rung| step ", "Epoch(train) ", "val_", "\n", "lr", "Train: ", "tensor(", "_", "."]  # fmt: skip
texts = st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@given(st.lists(texts, max_size=12))
def test_any_lines_are_followed_without_a_crash(lines):
    unwrapper, reader, track, figures = Unwrapper(), LineReader(), ProgressTracker(), FigureReader()
    for place, text in enumerate(lines, 1):
        figures.feed(Line(place, text))
        reading = reader.read(unwrapper.join_wrapped(text))
        if reading is not None:
            track.store(reading)
            step = track.advance(reading)
            assert step is None or 0 <= step < 10**15
    progress = track.snapshot()
    assert (progress.first_step is None) == (progress.furthest_step is None)
    assert progress.furthest_step is None or progress.furthest_step >= progress.first_step
    assert all(value > 0 for value in progress.throughput.values())


REPEATED = ["9", "=", "loss", "loss=", "loss ", "loss 1 ", "a/", "[(", "{'loss': [", " ", "1:", "step ", "step[", "epoch ", "nan", "-",
            "1e", "val_loss ", "resumed ", "x=1 ", "| a 1 ", "1/2 ", "it/s ", "1ms/", "━", "time: ", "[1][", "e_", "per_", "12%|"]  # fmt: skip


def seconds(text):
    """Return the shortest of several times for reading a line, because other work on the machine only adds to it."""
    times = []
    for _ in range(5):
        reader, unwrapper = LineReader(), Unwrapper()
        began = time.process_time()
        for _ in range(4):
            reader.read(unwrapper.join_wrapped(text))
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize("piece", REPEATED)
def test_the_time_to_read_a_line_grows_with_its_length_and_no_faster(piece):
    short = (piece * MAX_READ)[: MAX_READ // 8]
    long = (piece * MAX_READ)[:MAX_READ]
    # Eight times the text; a quadratic pattern would take 64 times as long.
    assert seconds(long) < 30 * seconds(short) + 0.02


def test_a_line_is_read_only_up_to_its_limit():
    assert read("x" * MAX_READ + " loss=2.5") is None
    assert read(" " * (MAX_READ - 20) + " loss=2.5").loss == 2.5
