"""Tests which words of a script may show a fault."""

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.doubts.words import find_words
from rung.recovery.logs.lines import Line


def kinds(*texts):
    return [doubt.kind for doubt in find_words([Line(number, text) for number, text in enumerate(texts, 1)])]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("non-finite activations in block 3, skipping this batch", FaultKind.NAN_LOSS),
        ("WARNING: reverting to the last good weights, output was NaN", FaultKind.NAN_LOSS),
        ("ValueError: input of the head has NaN values, found 12", FaultKind.NAN_LOSS),
        ("training diverged, giving up", FaultKind.DIVERGENCE),
        ("OverflowError: math range error", FaultKind.DIVERGENCE),
    ],
)
def test_words_about_bad_numbers_are_shown(text, kind):
    assert kinds("step 1", text) == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "no NaN found in the weights",
        "will stop if the loss is nan",
        '{"nan_policy": "propagate", "skip_nan_batches": true}',
        "XLA_FLAGS=--nan_policy=ignore --overflow-checks=off",
        "HR@10 of cold users: nan (0 users)",
        "checking for NaN in inputs: found 0",
        "    raise ValueError('loss is nan, stopping')",
        "12 series, nan handling: ignore",
        "dropped 1 row with NaN features from batch 17",
        "imputed NaN labels in 4 samples, skipping none",
        "Note that some metrics cannot be computed and are shown as NaN.",
        "WARNING value nan is not finite for histogram, skipping",
        "your branch and origin/main have diverged, and have 3 and 5 commits each",
        "UserWarning: Input contains NaN; they are treated as missing",
        "KL divergence 0.3, JS divergence 0.1",
    ],
)
def test_words_that_tell_of_nothing_are_not_shown(text):
    assert kinds("step 1", text) == []


def test_steps_skipped_up_to_the_end_are_shown_and_those_at_the_start_are_not():
    skip, steps = "Gradient overflow. Skipping step", ["step"] * 3
    spread = [text for _ in range(6) for text in (skip, *steps)]
    assert kinds(*spread) == [FaultKind.SCALE_THRASH]
    assert kinds(*[skip] * 6, *steps * 6) == []
