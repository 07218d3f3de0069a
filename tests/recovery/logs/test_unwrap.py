"""Tests frames of a progress bar that were broken over several lines."""

from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.logs.unwrap import Unwrapper

FRAME = "Epoch 0/4  ━━━━━━━━╸       7/16 0:00:01 • 0:00:02 9.1it/s train_loss:"
COLUMN = " " * 60


def join_lines(*lines):
    unwrapper = Unwrapper()
    return [unwrapper.join_wrapped(line) for line in lines]


def test_a_wrapped_value_gets_its_name_back():
    assert join_lines(FRAME, f"{COLUMN}nan val_loss:  ", f"{COLUMN}0.5   ") == [
        FRAME,
        "train_loss: nan val_loss:  ",
        "val_loss: 0.5   ",
    ]


def test_a_value_beside_its_name_is_not_changed():
    whole = FRAME.replace("train_loss:", "train_loss: 2.0")
    assert join_lines(whole, f"{COLUMN}val_loss: 0.5")[1].strip() == "val_loss: 0.5"


def test_only_the_column_below_a_frame_is_joined():
    assert join_lines(FRAME, "0.5 is not of the frame", f"{COLUMN}0.5")[1:] == [
        "0.5 is not of the frame",
        f"{COLUMN}0.5",
    ]
    assert join_lines("options:", f"{COLUMN}0.5")[1] == f"{COLUMN}0.5"
    assert join_lines("a list • loss:", f"{COLUMN}nan")[1] == f"{COLUMN}nan"


@given(st.lists(st.text(st.sampled_from("━╸ •0:/-a\t")), max_size=20))
def test_a_line_never_loses_anything_but_its_indentation(lines):
    for line, joined in zip(lines, join_lines(*lines), strict=True):
        assert joined.endswith(line.lstrip(" "))
