"""Tests the rules of a job file: they are tried first, and the printed job file does not match them."""

import pytest
from pydantic import ValidationError

from rung.jobs.model.fault import FaultKind
from rung.jobs.spec.recovery_spec import Rule
from rung.recovery.decide.decide import Relaunch, Stop, decide
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import LineSplitter
from rung.recovery.signatures.user_rules import MAX_RULE_TEXT
from tests.support.jobs_in_trouble import a_checkpoint, a_job, an_attempt

K = FaultKind
LINE = "the cooling of rack 4 has failed\n"


def a_rule(**what):
    return Rule.model_validate({"name": "ours", "pattern": "cooling of rack", **what})


def watch(text, *rules):
    detector, splitter = Detector(rules), LineSplitter()
    lines = [*splitter.feed(text.encode()), *splitter.flush()]
    return detector, [fault for line in lines for fault in detector.feed(line)] + detector.finish()


def decided(detector, attempts=1, **recovery):
    job = a_job(recovery={"rules": [{"name": "ours", "pattern": "x", "action": "stop"}], **recovery})
    fault = detector.first_fault(ended=False)
    tries = [an_attempt(number, job.knobs, fault) for number in range(1, attempts + 1)]
    return decide(job, tries, [a_checkpoint(50)], None)


def test_a_rule_is_tried_first_and_acted_on_at_once():
    detector, found = watch("CUDA out of memory\n", a_rule(pattern="^CUDA out of", fault="cuda_fault"))
    assert [fault.kind for fault in found] == [K.CUDA_FAULT]
    assert detector.first_fault(ended=False).note == "the job's own rule 'ours'"


def test_the_first_rule_that_matches_decides():
    _, found = watch(LINE, a_rule(fault="oom"), a_rule(action="stop"))
    assert [fault.kind for fault in found] == [K.OOM]


def test_a_rule_is_acted_on_and_not_the_findings_before_it():
    text = "2025-01-01 - WARNING - batch failed: CUDA out of memory. Tried to allocate 4 GiB.\n" + LINE
    assert watch(text, a_rule(action="stop"))[0].first_fault(ended=False).kind is K.RULE_STOP


def test_the_action_stop_ends_the_job_with_the_name_of_the_rule():
    decision = decided(watch(LINE, a_rule(action="stop"))[0])
    assert isinstance(decision, Stop)
    assert decision.diagnosis.startswith("rule_stop (the job's own rule 'ours'): as asked. What to do: ")


def test_the_action_retry_keeps_the_knobs_and_uses_the_infra_budget():
    detector, _ = watch("step 60 loss 2.0\n" + LINE, a_rule(action="retry"))
    decision = decided(detector)
    assert isinstance(decision, Relaunch)
    assert (decision.rung, decision.delay, decision.checkpoint.step) == (None, 5.0, 50)
    assert "rule 'ours'" in decision.because and "as asked" in decision.because
    assert isinstance(decided(detector, attempts=3, infra_retries=2), Stop)


def test_an_ignored_line_is_no_fault_but_changes_the_step():
    rule = a_rule(pattern="^aux:|teacher ran", action="ignore")
    text = "teacher ran: CUDA out of memory\naux: step 7 loss: nan\naux: step 8 loss: nan\naux: step 9 loss: nan\n"
    detector, found = watch(text, rule)
    assert found == [] and detector.first_fault(ended=True) is None
    assert detector.progress.step == 9
    assert watch(text)[1] != []


def test_no_rule_matches_a_record_a_comment_or_the_printed_job_file():
    for echo in (
        'rules: [{name: ours, pattern: "cooling of rack", action: stop}]\n',
        "  - name: the cooling of rack 4\n    pattern: cooling of rack\n",
        "rung| saved step=1 file=cooling of rack\n",
        "# cooling of rack\n",
        "Namespace(note='cooling of rack')\n",
    ):
        assert watch(echo, a_rule(action="stop"))[1] == []


def test_a_rule_is_tried_only_on_the_start_of_a_long_line():
    assert watch("x" * MAX_RULE_TEXT + LINE, a_rule(action="stop"))[1] == []


def test_no_line_can_make_a_rule_take_long():
    # With Python's `re` this pattern takes exponential time.
    detector, _ = watch("a" * 4000 + "!\n" + "aaa\n", a_rule(pattern="(a+)+$", fault="nan_loss"))
    assert detector.first_fault(ended=False).line == 2


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({}, "rule 'ours': give exactly one of fault and action"),
        ({"fault": "oom", "action": "stop"}, "rule 'ours': give exactly one of fault and action"),
        ({"fault": "rule_stop"}, "rule 'ours': write action: stop instead of a fault"),
        ({"action": "panic"}, "'ignore', 'stop' or 'retry'"),
        ({"pattern": r"(a)\1", "fault": "oom"}, "rule 'ours': not a regular expression that RE2 knows: "),
        ({"pattern": "(?<!x)y", "action": "stop"}, "rule 'ours': not a regular expression that RE2 knows: "),
    ],
)
def test_an_invalid_rule_is_reported_with_its_name(what, message):
    with pytest.raises(ValidationError) as raised:
        a_rule(**what)
    assert message in str(raised.value)
