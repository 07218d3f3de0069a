"""Reading by shapes must be the reader's own answer, only sooner."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rung.recovery.detect.line_templates import MAX_KEYS, MAX_PER_KEY, LineTemplates, learn
from rung.recovery.logs.line_reader import LineReader, read
from rung.recovery.logs.lines import text_of
from tests.bench.speed import lines

STEPS = st.integers(0, 10**9)
FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=32)


def numbers(text):
    return str(read(text))


@pytest.mark.parametrize(
    "line",
    [
        b"step 12 | loss 2.5 | lr 1e-4 | grad_norm 0.5",
        b"{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.13}",
        "Epoch 3:  45%|████▌     | 450/1000 [00:12<01:33, 8.91it/s, loss=2.125]".encode(),
        b"Epoch(train)  [2][  7/1000]  lr: 5.7e-05  eta: 1:02:27  memory: 107  loss: 1.5  loss_cls: 0.75",
        b"rung| step step=12 loss=2.5 lr=0.001 grad_norm=0.5 scale=65536.0 skipped=0",
        b"[INFO] rank 3: read part-00123.tar in 0.810s",
        b"loss: -2.5 at step 7",
    ],
)
def test_the_usual_formats_have_a_shape(line):
    assert learn(line) is not None


class Counting(LineReader):
    """A reader that counts how often it was asked."""

    asked = 0

    def read(self, text):
        self.asked += 1
        return super().read(text)


def test_a_known_shape_is_read_without_asking_the_reader():
    reader = Counting()
    shapes = LineTemplates(reader)
    for step in (1, 2):
        shapes.read(b"step %d loss 2.5" % step)
    reading = shapes.read(b"step 1345 loss 0.125")
    assert (reading.step, reading.loss, reader.asked) == (1345, 0.125, 2)


def test_the_rows_of_a_table_are_read_by_their_header_each_time_it_comes():
    lines = ["epoch,loss,lr", "1,2.5,0.1", "2,2.25,0.1", "epoch,lr,loss", "3,0.1,2.0", "4,0.1,1.75"]
    shapes, reader = LineTemplates(LineReader()), LineReader()
    for line in lines * 3:
        assert str(shapes.read(line.encode())) == str(reader.read(line))


def test_zero_is_not_just_another_number():
    # A bar at 0 is drawn before anything was done: it is no step.
    shapes = LineTemplates(LineReader())
    for done in (1, 2, 3, 0, 4, 0):
        line = f"{done}/500 [00:01<00:09, 9.99it/s, loss=2.1]"
        assert str(shapes.read(line.encode())) == numbers(line)


def test_every_line_of_a_mixed_log_reads_as_the_reader_reads_it():
    shapes, source = LineTemplates(LineReader()), lines(random.Random(3))
    for _ in range(30_000):
        raw = next(source).strip("\r\n").encode()
        assert str(shapes.read(raw)) == numbers(text_of(raw))


FORMATS = (
    "step {a} loss {x}",
    "step: {a}, loss: {x}, lr: {y}, grad norm: {z}",
    "{{'loss': {x}, 'grad_norm': {y}, 'learning_rate': {z}, 'epoch': {b}}}",
    "Epoch {a}: {b}/{c} [00:{a}<00:0{b}, {x}it/s, loss={y}]",
    "[{a}][{b}/{c}] loss {x} ({y}) scale {z}",
    "| epoch {a:03d} | loss={x} | num_updates {b} | gnorm {y}",
    "iteration {a:8d}/ {c} | lm loss: {x} | loss scale: {y} | number of skipped iterations: {b}",
    "rung| step step={a} loss={x} skipped={b} scale={y}",
    "resumed from checkpoint at step {a}, loss {x}",
    "loss_{b}={x} loss_{c}={y}",
    "val_loss {x} step {a} rank{b}",
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.lists(st.tuples(STEPS, STEPS, STEPS, FLOATS, FLOATS, FLOATS), min_size=3, max_size=8),
)
def test_whatever_the_numbers_are_the_answer_is_the_readers(form, rows):
    shapes = LineTemplates(LineReader())
    for a, b, c, x, y, z in rows:
        line = form.format(a=a, b=b, c=c, x=x, y=y, z=z)
        assert str(shapes.read(line.encode())) == numbers(line)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6))
def test_any_bytes_read_as_the_reader_reads_them(rows):
    shapes = LineTemplates(LineReader())
    for raw in rows + rows:
        raw = raw.replace(b"\n", b"").replace(b"\r", b"")
        assert str(shapes.read(raw)) == numbers(text_of(raw))


def test_a_log_of_ever_new_lines_is_not_remembered_for_ever():
    shapes, dice = LineTemplates(LineReader()), random.Random(5)
    for _ in range(3 * MAX_KEYS):
        word = "".join(dice.choices("abcdfghij", k=12))
        shapes.read(f"{word} loss 1.5".encode())
    assert len(shapes._known) <= MAX_KEYS


def test_a_key_that_never_fits_is_not_tried_for_ever():
    shapes = LineTemplates(LineReader())
    for index in range(5 * MAX_PER_KEY):
        shapes.read(f"part_{index:05d} loss 2.5".encode())
    assert [len(known) for known in shapes._known.values()] == [MAX_PER_KEY]
