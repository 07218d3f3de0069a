"""Tests the doctor's rules: what each finds, how severe it is, and which similar code gets no finding."""

from __future__ import annotations

import pytest

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.examine import NAMES, RULES, examine, unknown_rules
from rung.recovery.doctor.fp16_reach import reached, says_fp16
from rung.recovery.doctor.rules.rule import LintFinding, Severity
from tests.recovery.doctor.rules.rule_cases import ADAM, CASES, LOSS, TOP


def found(snippet: str, *, top: str = TOP, fp16: bool = True) -> list[LintFinding]:
    examined = examine(Script((top + snippet).encode()))
    return list(examined.in_fp16 if fp16 else examined.elsewhere)


def rules_of(snippet: str) -> set[str]:
    return {finding.rule for finding in found(snippet)}


def cases(which: int) -> list[tuple[str, str]]:
    return [(name, snippet) for name, pair in CASES.items() for snippet in pair[which]]


def test_every_rule_has_cases() -> None:
    assert {*CASES, "half-model-with-adam"} == NAMES
    assert all(len(hits) >= 2 and len(misses) >= 3 for hits, misses in [*CASES.values(), ADAM])
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(("rule", "snippet"), cases(0))
def test_a_rule_finds_its_fault(rule: str, snippet: str) -> None:
    assert rule in rules_of(snippet)


@pytest.mark.parametrize(("rule", "snippet"), cases(1))
def test_a_rule_does_not_report_similar_code_that_is_right(rule: str, snippet: str) -> None:
    Script((TOP + snippet).encode())
    assert rule not in rules_of(snippet)


@pytest.mark.parametrize("snippet", ADAM[0])
def test_adam_on_fp16_parameters_is_found_without_a_scaler(snippet: str) -> None:
    assert "half-model-with-adam" in {finding.rule for finding in found(snippet, top="")}


@pytest.mark.parametrize("snippet", ADAM[1])
def test_optimizers_that_work_with_fp16_parameters_are_not_reported(snippet: str) -> None:
    assert "half-model-with-adam" not in {finding.rule for finding in found(snippet, top="")}


def test_a_finding_gives_its_line_the_problem_the_reason_and_the_fix() -> None:
    snippet = LOSS.format("return -torch.mean(torch.log(torch.sigmoid(x)))")
    finding = next(each for each in found(snippet) if each.rule == "log-of-sigmoid")
    assert finding.line == TOP.count("\n") + 2
    assert finding.severity is Severity.ERROR
    assert "torch.log(torch.sigmoid(x))" in finding.what
    assert "logsigmoid" in finding.fix
    assert finding.why


def test_an_fp16_rule_is_a_note_or_silent_in_a_file_without_fp16() -> None:
    mask = LOSS.format("return x.masked_fill(mask, -1e9) + torch.exp(x)")
    assert {f.rule: f.severity for f in found(mask, fp16=False)} == {"fill-beyond-fp16": Severity.NOTE}
    assert {f.rule: f.severity for f in found(mask)} == {
        "fill-beyond-fp16": Severity.ERROR,
        "exp-without-clip": Severity.WARNING,
    }


def test_a_value_that_was_cast_to_fp32_is_only_a_warning() -> None:
    assert found(LOSS.format("return torch.log(torch.sigmoid(x.float()))"))[0].severity is Severity.WARNING


def severities(snippet: str, rule: str, top: str = TOP) -> list[Severity]:
    return [finding.severity for finding in found(snippet, top=top) if finding.rule == rule]


def test_an_fp16_model_and_a_scaler_in_two_functions_are_a_warning_unless_both_are_called() -> None:
    model = "    model = Net().half()\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    apart = f"import torch\ndef one():\n{model}def two():\n    scaler = torch.amp.GradScaler()\n"
    together = f"import torch\ndef one():\n{model}    scaler = torch.amp.GradScaler()\n"
    assert severities(apart, "half-model-with-scaler", top="") == [Severity.WARNING]
    assert severities(together, "half-model-with-scaler", top="") == [Severity.ERROR]
    called = f"{apart}def main():\n    one()\n    two()\n"
    assert severities(called, "half-model-with-scaler", top="") == [Severity.ERROR]


def test_an_fp16_base_with_peft_adapters_is_only_a_warning() -> None:
    lora = "base = Net().half()\nmodel = get_peft_model(base, config{})\ntrainer = Trainer(model=model)\n"
    assert severities(lora.format(""), "half-model-with-scaler") == [Severity.WARNING]


def test_a_less_certain_finding_is_less_severe() -> None:
    unknown = LOSS.format("return x / (y + 1e-12)")
    known = LOSS.format("return x / (y.norm() + 1e-12)")
    assert severities(unknown, "eps-vanishes") == [Severity.NOTE]
    assert severities(known, "eps-vanishes") == [Severity.WARNING]
    assert severities(LOSS.format("return torch.log(1 - x + 1e-8)"), "eps-vanishes") == [Severity.WARNING]
    assert severities(LOSS.format("return torch.exp(log_var)"), "exp-without-clip") == [Severity.NOTE]
    assert severities(LOSS.format("return torch.exp(x)"), "exp-without-clip") == [Severity.WARNING]
    assert severities(LOSS.format("return x / mask.sum()"), "division-without-eps") == [Severity.NOTE]


def test_a_file_without_torch_has_no_findings() -> None:
    assert found("def loss(x, mask):\n    return x.masked_fill(mask, -1e9)\n", top="") == []


def test_a_comment_silences_one_rule_on_its_line() -> None:
    line = "return x.masked_fill(mask, -1e9) / x.norm()"
    assert {f.rule for f in found(LOSS.format(line))} == {"fill-beyond-fp16", "division-without-eps"}
    silenced = LOSS.format(f"{line}  # rung: ignore[fill-beyond-fp16]")
    assert {f.rule for f in found(silenced)} == {"division-without-eps"}
    both = LOSS.format(f"{line}  # rung: ignore[fill-beyond-fp16, division-without-eps] raw inputs")
    assert found(both) == []


def test_a_comment_on_any_line_of_an_expression_silences_its_rule_and_one_above_does_not() -> None:
    spread = LOSS.format("return x.masked_fill(\n        mask,\n        -1e9,  # rung: ignore[fill-beyond-fp16]\n    )")
    assert found(spread) == []
    above = LOSS.format("# rung: ignore[fill-beyond-fp16]\n    return x.masked_fill(mask, -1e9)")
    assert [f.rule for f in found(above)] == ["fill-beyond-fp16"]


def test_a_comment_that_names_an_unknown_rule_is_reported() -> None:
    script = Script(b"import torch\nx = 1  # rung: ignore[fill-beyond-fp61]\n")
    assert unknown_rules(script) == [(2, "fill-beyond-fp61")]


@pytest.mark.parametrize(
    "source",
    [
        "from torch.cuda.amp import GradScaler\ns = GradScaler()\n",
        "import torch\nwith torch.autocast('cuda', dtype=torch.float16):\n    pass\n",
        "import torch\nmodel.half()\n",
        "trainer = Trainer(precision='16-mixed')\n",
        "trainer = Trainer(precision=16)\n",
        "args = TrainingArguments(fp16=True)\n",
        "parser.add_argument('--amp', action='store_true')\n",
        "cfg.use_fp16 = True\n",
    ],
)
def test_a_file_with_these_words_uses_fp16(source: str) -> None:
    assert says_fp16(Script(source.encode()))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nhalf = dim // 2\n",
        "import torch\nwith torch.autocast('cuda', dtype=torch.bfloat16):\n    pass\n",
        "'''Trained in fp16 once.'''\n# float16\nx = torch.bfloat16\n",
        "precision = tp / (tp + fp)\n",
    ],
)
def test_a_file_with_these_words_does_not_use_fp16(source: str) -> None:
    assert not says_fp16(Script(source.encode()))


def test_files_that_an_fp16_file_imports_run_in_fp16_too() -> None:
    imports = {
        "src/train.py": frozenset({"models.mmgcn.MMGCN", "torch"}),
        "src/models/mmgcn.py": frozenset({".layers.GCN"}),
        "src/models/layers.py": frozenset({"torch"}),
        "src/data.py": frozenset({"torch"}),
        "other/layers.py": frozenset({"torch"}),
    }
    found_in_fp16 = reached(imports, frozenset({"src/train.py"}))
    assert {"src/train.py", "src/models/mmgcn.py", "src/models/layers.py"} <= found_in_fp16
    assert "src/data.py" not in found_in_fp16
