"""Tests that a perplexity above the size of every vocabulary is a fault where the loss has not fallen."""

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.monitors.perplexity import PerplexityMonitor
from tests.recovery.detect.watched_log import at_end


def log(pairs, template="step {n} | loss {loss} | ppl {ppl}"):
    return "".join(template.format(n=n, loss=loss, ppl=ppl) + "\n" for n, (loss, ppl) in enumerate(pairs, 1))


@pytest.mark.parametrize("template", ["step {n} | loss {loss} | ppl {ppl}", "step {n} loss={loss} perplexity={ppl}"])
@pytest.mark.parametrize("ppl", ["182687704666362864775460604089535377456.00", "4.1e+38", "inf"])
def test_impossible_perplexities_beside_a_loss_that_has_not_fallen_explain_the_end(template, ppl):
    assert at_end(log([(88.1, ppl), (91.5, ppl), (88.3, ppl)], template)) is FaultKind.DIVERGENCE


@pytest.mark.parametrize(
    "pairs",
    [
        [(91.5, "4e38")] * 2,  # too few
        [(91.5, "4e38"), (88.1, "2e38"), (85.2, "1e37")],  # a sum over tokens that falls
        [(88.1, "4e38"), (91.5, "4e38"), (9.5, "13359.7")],  # it came back
        [(10.5, "36315.5")] * 9,  # a guess
    ],
)
def test_other_perplexities_are_no_fault(pairs):
    assert at_end(log(pairs)) is None


def test_a_perplexity_without_a_training_loss_is_a_score():
    assert at_end("eval: perplexity inf over 0 documents\n" * 5) is None


def test_readings_that_are_missing_may_have_been_possible():
    watched = PerplexityMonitor()
    for _ in range(3):
        watched.see("loss 90 ppl 4e38", 90.0)
    assert watched.is_impossible
    watched.lines_missing()
    assert not watched.is_impossible
