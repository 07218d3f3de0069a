"""Whole small logs in the formats of the field, and what must be seen in each: tests/corpus/expected.json.

Those with a `progress` are what real runs of torch 2.13, transformers 5, Accelerate and Lightning 2 wrote, shortened.
"""

import json
from pathlib import Path

import pytest

from recovery.detect import Detector
from recovery.lines import LineSplitter

CORPUS = Path(__file__).parent.parent / "corpus"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())
REAL = sorted(name for name in EXPECTED if "progress" in EXPECTED[name])


def watch(name):
    """Return the detector after a whole log, and everything it listed."""
    detector, splitter = Detector(), LineSplitter()
    lines = [*splitter.feed((CORPUS / name).read_bytes()), *splitter.flush()]
    return detector, [fault for line in lines for fault in detector.feed(line)] + detector.finish()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_log_shows_what_it_is_expected_to(name):
    detector, listed = watch(name)
    now, at_end = detector.finding(ended=False), detector.finding(ended=True)
    assert {
        "listed": [[fault.kind, fault.line, fault.step] for fault in listed],
        "now": now and now.kind,
        "at_end": at_end and at_end.kind,
        "began": at_end and at_end.began,
    } == {key: value for key, value in EXPECTED[name].items() if key != "progress"}


@pytest.mark.parametrize("name", REAL)
def test_steps_and_losses_of_a_real_log_are_read(name):
    progress = watch(name)[0].progress
    assert {
        "first": progress.first_step,
        "furthest": progress.furthest_step,
        "loss": str(progress.loss),
        "resumed": progress.resumed_step,
    } == EXPECTED[name]["progress"]


def test_numbers_that_a_bar_broke_over_lines_are_whole_again():
    values = watch("lightning_rich_healthy.log")[0].progress.values
    assert (values["train_loss_step"], values["val_loss"], values["train_loss_epoch"]) == (0.111, 0.119, 0.258)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torchrun_rank_raises.log", "[rank1]: ValueError: a sample without a label"),
        ("worker_raises.log", "KeyError: 'label'"),
    ],
)
def test_an_exception_nobody_knows_is_the_last_word_of_its_run(name, words):
    assert watch(name)[0].tail[-1] == words


def test_every_log_of_the_corpus_has_an_expectation():
    assert {path.name for path in CORPUS.glob("*.log")} == set(EXPECTED)
