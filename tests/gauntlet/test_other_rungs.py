"""Tests the comparison with other rungs: what each rule does to an update, and which cases it may use."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.gauntlet import other_rungs
from tests.gauntlet.case import LATE_FAULTS, start_of
from tests.gauntlet.catalog import CATALOG
from tests.gauntlet.gradient_rules import RULES, Rule
from tests.gauntlet.judging import judge, read_results
from tests.gauntlet.other_rungs import NAMES, RESULTS, case_named, run, table
from tests.gauntlet.regimens import Trial

CASES = [case_named(name) for name in NAMES.split()]
# Longer than every rule's warm-up.
ORDINARY = 120


def update(rule: Rule, optimizer: torch.optim.Optimizer, gradient: float) -> float:
    """Make one update with this gradient under a rule, and return its size."""
    (weight,) = optimizer.param_groups[0]["params"]
    before = weight.item()
    weight.grad = torch.tensor([gradient], dtype=weight.dtype)
    rule.before(optimizer)
    optimizer.step()
    rule.after(optimizer)
    return abs(float(weight.item() - before))


def sgd(lr: float = 1.0, momentum: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, dtype=torch.float64, requires_grad=True)], lr=lr, momentum=momentum)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("clip 1.0", 1.0, 1.0),
        ("clip at median", 0.4, 0.6),
        ("AdaGC", 0.4, 0.65),
        ("ZClip", 0.4, 0.65),
        ("six sigma", 0.0, 0.0),
        ("lr x0.01", 1e4, 1e4),
        ("fresh state", 1e6, 1e6),
    ],
)
def test_a_rule_holds_back_an_enormous_gradient_or_does_not(name: str, least: float, most: float) -> None:
    rule, optimizer = RULES[name](), sgd()
    for step in range(ORDINARY):
        update(rule, optimizer, 0.5 + 0.1 * math.sin(step))
    assert least * 0.9999 <= update(rule, optimizer, 1e6) <= most * 1.0001


@pytest.mark.parametrize("name", ["ZClip", "six sigma"])
def test_a_rule_of_sigmas_passes_ordinary_gradients_before_and_after_an_enormous_one(name: str) -> None:
    rule, optimizer = RULES[name](), sgd()
    gradients = [0.5 + 0.1 * math.sin(step) for step in range(ORDINARY)]
    assert [update(rule, optimizer, each) for each in gradients] == pytest.approx(gradients)
    update(rule, optimizer, 1e6)
    assert update(rule, optimizer, 0.5) == pytest.approx(0.5)


def test_the_lr_is_the_scripts_own_again_after_the_update() -> None:
    rule, optimizer = RULES["lr x0.1"](), sgd(lr=2.0)
    assert update(rule, optimizer, 1.0) == pytest.approx(0.2)
    assert optimizer.param_groups[0]["lr"] == 2.0


def test_a_fresh_state_forgets_the_momentum_and_raises_the_lr_over_a_hundred_updates() -> None:
    optimizer = sgd(momentum=0.5)
    update(Silent(), optimizer, 100.0)
    rule = RULES["fresh state"]()
    assert update(rule, optimizer, 1.0) == pytest.approx(0.01)
    sizes = [update(rule, optimizer, 0.0) for _ in range(2)]
    assert sizes == pytest.approx([0.5 * 0.02, 0.25 * 0.03])


class Silent(Rule):
    def before(self, optimizer: torch.optim.Optimizer) -> None:
        pass


def test_a_late_fault_starts_from_a_checkpoint_before_it_and_the_others_from_scratch() -> None:
    starts = {case.name: start_of(case) for case in CASES}
    assert {start for name, start in starts.items() if any(each in name for each in LATE_FAULTS)} == {1300}
    assert {start for name, start in starts.items() if not any(each in name for each in LATE_FAULTS)} == {0}


def test_a_blind_case_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {case.side for case in CASES} == {"tune"}
    blind = next(case.name for case in CATALOG if case.side == "blind")
    monkeypatch.setattr("sys.argv", ["other_rungs", blind])
    with pytest.raises(SystemExit, match="must not decide"):
        other_rungs.main()


def test_the_docs_show_the_table_of_the_stored_results() -> None:
    page = (RESULTS.parents[2] / "docs" / "ladder.md").read_text(encoding="utf-8")
    assert table(judge(read_results(RESULTS), CASES)) in page


def test_a_script_runs_under_a_rule_that_it_does_not_know(tmp_path: Path) -> None:
    case = replace(case_named("gradient_spikes"), steps=50)
    result = run(Trial(case, 1, tmp_path), "six sigma", None)
    assert result.ended_well and result.val_loss is not None and result.val_loss < 10
