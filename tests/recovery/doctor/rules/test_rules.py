"""Tests the doctor's rules: what each must find, and what comes near it and must stay silent."""

from __future__ import annotations

import pytest

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.examine import NAMES, RULES, examine, unknown_rules
from rung.recovery.doctor.fp16_reach import reached, says_fp16
from rung.recovery.doctor.rules.rule import LintFinding, Severity

# A file that trains in FP16: the snippet stands inside of it.
TOP = """
import os, math
import numpy as np
import torch
import torch as th
from torch import nn, log
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
scaler = GradScaler()
"""


def found(snippet: str, *, top: str = TOP, fp16: bool = True) -> list[LintFinding]:
    examined = examine(Script((top + snippet).encode()))
    return list(examined.in_fp16 if fp16 else examined.elsewhere)


def rules_of(snippet: str) -> set[str]:
    return {finding.rule for finding in found(snippet)}


LOSS = "def loss_of(x, y, mask, eps=1e-6):\n    {}\n"
TRAINING = """
for x, y in loader:
    optimizer.zero_grad()
    with autocast():
        loss = model(x)
    {}
"""
CLASS = """
class Conditioned(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Sequential(nn.Linear(4, 64), {layer}, nn.Linear(64, 64))
        self.table = nn.Embedding(10, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x, kind):
        {body}
"""
SAVING = """
def save(model, path):
    {}

loss.backward()
"""
RESUMING = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
{}
loss.backward()
"""

# Each pair of lists: what must be found, what must stay silent.
CASES: dict[str, tuple[list[str], list[str]]] = {
    "log-of-sigmoid": (
        [
            LOSS.format("return -torch.mean(torch.log(torch.sigmoid(x)))"),
            LOSS.format("p = x.sigmoid()\n    return -(1 - p).log().mean()"),
            LOSS.format("return -log(th.sigmoid(x)[y]).mean()"),
            CLASS.format(layer="nn.GELU()", body="return F.sigmoid(self.project(x)).log()"),
            "class L(nn.Module):\n    def __init__(self):\n        self.s = nn.Sigmoid()\n"
            "    def forward(self, x):\n        return torch.log(self.s(x))\n",
        ],
        [
            LOSS.format("return -F.logsigmoid(x).mean()"),
            LOSS.format("return -torch.log(torch.sigmoid(x) + 1e-6).mean()"),
            LOSS.format("return -torch.log(torch.sigmoid(x).clamp(min=eps)).mean()"),
            LOSS.format("p = 0.98 * torch.sigmoid(x) + 0.01\n    return -torch.log(1 - p).mean()"),
            "@torch.no_grad()\n" + LOSS.format("return torch.log(torch.sigmoid(x))"),
        ],
    ),
    "log-of-softmax": (
        [
            LOSS.format("return F.nll_loss(torch.log(torch.softmax(x, 1)), y)"),
            LOSS.format("p = F.softmax(x, dim=-1)\n    return F.nll_loss(p.log(), y)"),
        ],
        [
            LOSS.format("return F.nll_loss(F.log_softmax(x, 1), y)"),
            LOSS.format("return torch.log(torch.softmax(x, 1) + eps)"),
            LOSS.format("return torch.log(x.exp().sum(1))"),
        ],
    ),
    "log-without-eps": (
        [
            LOSS.format("return torch.log(F.relu(x)).mean()"),
            LOSS.format("return torch.log(x.norm(dim=1)).mean()"),
            "def criterion(p, y):\n    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()\n",
        ],
        [
            LOSS.format("return torch.log(F.relu(x) + 1).mean()"),
            LOSS.format("return torch.log1p(F.relu(x)).mean()"),
            LOSS.format("return math.log(x.shape[0]) + np.log(y)"),
            LOSS.format("x = F.relu(x)\n    x.clamp_(min=eps)\n    return torch.log(x)"),
            LOSS.format("x = F.relu(x)\n    x += eps\n    return torch.log(x)"),
            LOSS.format("return torch.log(x)"),
            LOSS.format("return torch.log(x.pow(2) - y.pow(2)) + torch.log(1 - x.pow(2))"),
        ],
    ),
    "sqrt-without-eps": (
        [
            LOSS.format("return torch.sqrt(((x - y) ** 2).sum(1)).mean()"),
            LOSS.format("d = (x - y).pow(2).sum(-1)\n    return d.sqrt()"),
            LOSS.format("return x * x.var(dim=1) ** 0.5"),
            LOSS.format("return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))"),
        ],
        [
            LOSS.format("return torch.sqrt(((x - y) ** 2).sum(1) + eps).mean()"),
            LOSS.format("return x / math.sqrt(x.size(-1)) + x.shape[1] ** 0.5"),
            LOSS.format("return x / torch.sqrt(torch.tensor(64.0))"),
            LOSS.format("return x.pow(2).sum().clamp(min=1e-6).sqrt()"),
            LOSS.format("return (x > 0).sum().sqrt() + x.data.pow(2).sum().sqrt()"),
            "def augment(a, b):\n    return np.asarray(a).mean() + ((a - b) ** 2).sum() ** 0.5\n",
        ],
    ),
    "division-without-eps": (
        [
            LOSS.format("return x / x.norm(dim=1, keepdim=True)"),
            LOSS.format("return (x - x.mean()) / x.std()"),
            LOSS.format("s = x.abs().sum()\n    return torch.div(x, s)"),
            LOSS.format("return (x * mask).sum() / mask.sum()"),
        ],
        [
            LOSS.format("return x / (x.norm(dim=1, keepdim=True) + eps)"),
            LOSS.format("return x / 4.0 / len(x) / x.size(0) / x.shape[-1]"),
            LOSS.format("return (x * mask).sum() / mask.sum().clamp(min=1)"),
            LOSS.format("return x / x.std() if x.std() > 0 else x"),
            LOSS.format("e = (x - x.max()).exp()\n    return e / e.sum()"),
            LOSS.format("return x / y"),
            "def make_data(x):\n    return x / x.std()\nloss.backward()\n",
            "def points(n):\n    x = torch.rand(n, generator=own)\n    return x / x.norm()\nloss.backward()\n",
        ],
    ),
    "eps-vanishes": (
        [
            LOSS.format("return torch.log(torch.sigmoid(x) + 1e-8)"),
            "def loss_of(x, eps=1e-12):\n    return x / (x.norm() + eps)\n",
            LOSS.format("return torch.log(torch.sigmoid(x).clamp(min=1e-10))"),
        ],
        [
            LOSS.format("return torch.log(torch.sigmoid(x) + 1e-6)"),
            LOSS.format("return torch.log(torch.sigmoid(x.float()) + 1e-8)"),
            LOSS.format("return x / (len(x) + 1e-8) / ((y > 0).sum() + 1e-9)"),
            LOSS.format("x = x.float()\n    return x / (x.norm() + 1e-12)"),
            LOSS.format("with autocast(enabled=False):\n        return x / (x.norm() + 1e-12)"),
            LOSS.format("n = x.norm()\n    if n > 0.9:\n        x = x / (n + 1e-12)\n    return x / (y.exp() + 1e-9)"),
        ],
    ),
    "exp-without-clip": (
        [
            LOSS.format("e = torch.exp(x)\n    return e / e.sum()"),
            LOSS.format("return (14.0 * torch.tanh(x)).exp()"),
            LOSS.format("return torch.exp(F.relu(x))"),
        ],
        [
            LOSS.format("return torch.exp(-x.abs())"),
            LOSS.format("return torch.exp(x.clamp(-10, 10))"),
            LOSS.format("return torch.exp(x - x.max(dim=-1, keepdim=True).values)"),
            LOSS.format("return torch.exp(F.log_softmax(x, 1)) + torch.exp(-(x - y) ** 2 / 2)"),
            LOSS.format("return torch.exp(x.float()) + math.exp(3) + torch.exp(10 * torch.tanh(x))"),
        ],
    ),
    "fill-beyond-fp16": (
        [
            LOSS.format("return x.masked_fill(mask, -1e9)"),
            "NEG = -1e10\n" + LOSS.format("return torch.masked_fill(x, mask, value=NEG)"),
            LOSS.format("x.masked_fill_(mask == 0, torch.finfo(torch.float32).min)\n    return x"),
            LOSS.format("return x.clamp(max=1e6)"),
            LOSS.format("return x.masked_fill(mask, -1e3 * y.abs().max().item())"),
        ],
        [
            LOSS.format("return x.masked_fill(mask, float('-inf')) + x.masked_fill(mask, -1e4)"),
            LOSS.format("return x.masked_fill(mask, torch.finfo(x.dtype).min)"),
            LOSS.format("return x.float().masked_fill(mask, -1e9)"),
            LOSS.format("scores = x.to(torch.float32)\n    return scores.masked_fill(mask, -1e9)"),
            LOSS.format(
                "value = -65504.0 if x.dtype == torch.float16 else -1e9\n    return x.masked_fill(mask, value)"
            ),
            LOSS.format("if x.dtype == torch.float32:\n        return x.masked_fill(mask, -1e9)"),
            LOSS.format("return x.masked_fill(mask, y.min().item()) + x.masked_fill(mask, 0.0)"),
        ],
    ),
    "mask-beyond-fp16": (
        [
            LOSS.format("return torch.where(mask, x, -1e9)"),
            LOSS.format("return x + (1.0 - mask) * -1e9"),
            LOSS.format("x[mask] = -1e10\n    return x"),
        ],
        [
            LOSS.format("return x + (1.0 - mask) * -10000.0"),
            LOSS.format("return np.where(mask, x, -1e9)"),
            LOSS.format("best = 1e9\n    return x * 1e6 + best"),
            LOSS.format("return torch.where(mask, x, float('-inf'))"),
            LOSS.format("if x.dtype != torch.float16:\n        x = x - 1e30 * mask\n    return x"),
        ],
    ),
    "finfo-of-another-tensor": (
        [
            LOSS.format("scores = model(x)\n    return scores.masked_fill(mask, torch.finfo(x.dtype).min)"),
            LOSS.format("s = x @ y\n    low = torch.finfo(x.dtype).min\n    return s.masked_fill(mask, low)"),
        ],
        [
            LOSS.format("scores = model(x)\n    return scores.masked_fill(mask, torch.finfo(scores.dtype).min)"),
            LOSS.format("return x.masked_fill(mask, torch.finfo(x.dtype).min)"),
            LOSS.format("x = model(x)\n    s = x @ y\n    return s.masked_fill(mask, torch.finfo(x.dtype).min)"),
        ],
    ),
    "rand-as-parameter": (
        [
            "class G(nn.Module):\n    def __init__(self):\n        self.w = torch.rand((9, 4), requires_grad=True)\n",
            "def new_table():\n    return torch.rand(9, requires_grad=True)\n"
            "class G(nn.Module):\n    def __init__(self):\n        self.w = new_table()\n",
            "weights = torch.rand(3, requires_grad=True)\noptimizer = torch.optim.SGD([weights], lr=0.1)\n",
        ],
        [
            "class G(nn.Module):\n    def __init__(self):\n        self.table = nn.Parameter(torch.rand(9, 4))\n",
            "x = torch.rand(3, 4, requires_grad=True)\nmodel(x).sum().backward()\n",
            "class G(nn.Module):\n    def __init__(self):\n        self.noise = torch.rand(9, 4)\n",
        ],
    ),
    "relu-into-embedding": (
        [
            CLASS.format(layer="nn.ReLU()", body="return self.project(x) + self.table(kind)"),
            CLASS.format(
                layer="nn.ReLU()", body="e = self.project(x)\n        c = self.table(kind)\n        return c + e"
            ),
            CLASS.format(layer="nn.GELU()", body="return F.relu(self.project(x)) + self.table(kind)"),
            CLASS.format(layer="nn.ReLU()", body="return self.norm(F.relu(self.lift(x[0]))) + self.table(kind)")
            .replace("self.norm =", "self.lift = nn.Linear(4, 64)\n        self.norm =")
            .replace("x[0]", "x.unsqueeze(-1)"),
        ],
        [
            CLASS.format(layer="nn.GELU()", body="return self.project(x) + self.table(kind)"),
            CLASS.format(
                layer="nn.ReLU()", body="x = x.clamp(0, 1)\n        return self.project(x) + self.table(kind)"
            ),
            CLASS.format(layer="nn.ReLU()", body="return self.norm(self.project(x) + self.table(kind))"),
            CLASS.format(layer="nn.ReLU()", body="return (self.project(x) + self.table(kind)).clamp(-1e4, 1e4)"),
            CLASS.format(layer="nn.ReLU()", body="return self.project(x) + x"),
            CLASS.format(
                layer="nn.GELU()", body="h = self.norm(x)\n        return F.gelu(self.project(h)) + self.table(kind)"
            ),
        ],
    ),
    "half-model-with-scaler": (
        [
            "model = Net()\nmodel.half()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
            "model = Net().to(torch.float16).cuda()\noptimizer = torch.optim.AdamW(model.parameters())\n",
            "model = AutoModel.from_pretrained('x', torch_dtype=torch.float16)\ntrainer = Trainer(model=model)\n",
            "base.half()\nmodel = Adapted(base)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
        ],
        [
            "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nx = x.half()\n",
            "model = Net()\nmodel.half()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n".replace(
                "half", "cuda"
            ),
            "teacher = Net().half()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "torch.save({'model': deepcopy(model).half()}, path)\n",
            "model = Net().to(torch.bfloat16)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
        ],
    ),
    "clip-before-unscale": (
        [
            TRAINING.format(
                "scaler.scale(loss).backward()\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "    scaler.step(optimizer)\n    scaler.update()"
            ),
            TRAINING.format(
                "scaled = scaler.scale(loss)\n    scaled.backward()\n    if clip:\n"
                "        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)\n    scaler.unscale_(optimizer)\n"
                "    scaler.step(optimizer)\n    scaler.update()"
            ),
        ],
        [
            TRAINING.format(
                "scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n"
                "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.step(optimizer)\n    scaler.update()"
            ),
            TRAINING.format(
                "loss.backward()\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()"
            ),
            TRAINING.format(
                "if amp:\n        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n"
                "    else:\n        loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "        optimizer.step()"
            ),
        ],
    ),
    "unscale-twice": (
        [
            TRAINING.format(
                "scaler.scale(loss).backward()\n    if step % 25 == 0:\n        scaler.unscale_(optimizer)\n"
                "    scaler.unscale_(optimizer)\n    scaler.step(optimizer)\n    scaler.update()"
            ),
            TRAINING.format("scaler.unscale_(optimizer)\n    print(norm)\n    scaler.unscale_(optimizer)"),
        ],
        [
            TRAINING.format("scaler.unscale_(first)\n    scaler.unscale_(second)"),
            TRAINING.format(
                "if clip:\n        scaler.unscale_(optimizer)\n    else:\n        scaler.unscale_(optimizer)"
            ),
            TRAINING.format(
                "scaler.unscale_(optimizer)\n    scaler.step(optimizer)\n    scaler.update()\n"
                "    scaler.unscale_(optimizer)"
            ),
        ],
    ),
    "no-nan-check": (
        [
            TRAINING.format("loss.backward()\n    optimizer.step()"),
            TRAINING.format("scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()"),
        ],
        [
            TRAINING.format("assert torch.isfinite(loss)\n    loss.backward()\n    optimizer.step()"),
            TRAINING.format("if math.isnan(loss.item()):\n        break\n    loss.backward()\n    optimizer.step()"),
            "loss.backward()\noptimizer.step()\n",
        ],
    ),
    "checkpoint-not-atomic": (
        [
            SAVING.format("torch.save(model.state_dict(), path)"),
            TRAINING.format("loss.backward()\n    torch.save(model.state_dict(), 'last.pt')"),
        ],
        [
            SAVING.format("torch.save(model.state_dict(), path + '.new')\n    os.replace(path + '.new', path)"),
            SAVING.format("buffer = io.BytesIO()\n    torch.save(model.state_dict(), buffer)"),
            "loss.backward()\ntorch.save(model.state_dict(), 'final.pt')\n",
        ],
    ),
    "resume-restores-lr": (
        [
            RESUMING.format("optimizer.load_state_dict(state['optimizer'])"),
            RESUMING.format("lr_scheduler.load_state_dict(state['scheduler'])"),
        ],
        [
            RESUMING.format(
                "optimizer.load_state_dict(state['optimizer'])\n"
                "for group in optimizer.param_groups:\n    group['lr'] = 1e-4"
            ),
            RESUMING.format("model.load_state_dict(state['model'])"),
            RESUMING.format(
                "optimizer.load_state_dict(state)\ndef set_lr(lr):\n    for g in optimizer.param_groups:\n"
                "        g['lr'] = lr"
            ),
        ],
    ),
    "lr-set-before-resume": (
        [
            RESUMING.format(
                "for group in optimizer.param_groups:\n    group['lr'] = 1e-4\noptimizer.load_state_dict(state)"
            ),
            RESUMING.format("optimizer.param_groups[0]['lr'] *= 0.1\nscheduler.load_state_dict(state)"),
        ],
        [
            RESUMING.format("optimizer.load_state_dict(state)\noptimizer.param_groups[0]['lr'] = 1e-4"),
            RESUMING.format(
                "if resume:\n    optimizer.load_state_dict(state)\nelse:\n    optimizer.param_groups[0]['lr'] = 1e-4"
            ),
            RESUMING.format("optimizer.param_groups[0]['lr'] = 1e-4\nmodel.load_state_dict(state)"),
        ],
    ),
}
NATIVE = "import torch\nfrom torch import nn\nmodel = Net(){}\noptimizer = torch.optim.{}\n"
ADAM: tuple[list[str], list[str]] = (
    [
        NATIVE.format(".half()", "Adam(model.parameters(), lr=1e-3)"),
        NATIVE.format(".to(torch.float16)", "AdamW(model.parameters(), eps=1e-8)"),
    ],
    [
        NATIVE.format(".half()", "SGD(model.parameters(), lr=1e-3)"),
        NATIVE.format(".half()", "AdamW(model.parameters(), eps=1e-4)"),
        NATIVE.format("", "AdamW(model.parameters())"),
    ],
)


def cases(which: int) -> list[tuple[str, str]]:
    return [(name, snippet) for name, pair in CASES.items() for snippet in pair[which]]


def test_every_rule_has_its_cases() -> None:
    assert {*CASES, "half-model-with-adam"} == NAMES
    assert all(len(hits) >= 2 and len(misses) >= 3 for hits, misses in [*CASES.values(), ADAM])
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(("rule", "snippet"), cases(0))
def test_what_a_rule_must_find(rule: str, snippet: str) -> None:
    assert rule in rules_of(snippet)


@pytest.mark.parametrize(("rule", "snippet"), cases(1))
def test_what_comes_near_and_must_stay_silent(rule: str, snippet: str) -> None:
    Script((TOP + snippet).encode())
    assert rule not in rules_of(snippet)


@pytest.mark.parametrize("snippet", ADAM[0])
def test_adam_on_fp16_parameters_is_found_without_a_scaler(snippet: str) -> None:
    assert "half-model-with-adam" in {finding.rule for finding in found(snippet, top="")}


@pytest.mark.parametrize("snippet", ADAM[1])
def test_optimizers_that_bear_fp16_parameters_are_left_alone(snippet: str) -> None:
    assert "half-model-with-adam" not in {finding.rule for finding in found(snippet, top="")}


def test_a_finding_says_where_what_why_and_the_fix() -> None:
    snippet = LOSS.format("return -torch.mean(torch.log(torch.sigmoid(x)))")
    finding = next(each for each in found(snippet) if each.rule == "log-of-sigmoid")
    assert finding.line == TOP.count("\n") + 2
    assert finding.severity is Severity.ERROR
    assert "torch.log(torch.sigmoid(x))" in finding.what
    assert "logsigmoid" in finding.fix
    assert finding.why


def test_a_rule_on_fp16_alone_is_softer_or_silent_where_nothing_says_fp16() -> None:
    mask = LOSS.format("return x.masked_fill(mask, -1e9) + torch.exp(x)")
    assert {f.rule: f.severity for f in found(mask, fp16=False)} == {"fill-beyond-fp16": Severity.NOTE}
    assert {f.rule: f.severity for f in found(mask)} == {
        "fill-beyond-fp16": Severity.ERROR,
        "exp-without-clip": Severity.WARNING,
    }


def test_a_value_that_was_cast_to_fp32_is_judged_as_in_fp32() -> None:
    assert found(LOSS.format("return torch.log(torch.sigmoid(x.float()))"))[0].severity is Severity.WARNING


def severities(snippet: str, rule: str, top: str = TOP) -> list[Severity]:
    return [finding.severity for finding in found(snippet, top=top) if finding.rule == rule]


def test_a_half_model_and_a_scaler_of_two_functions_may_never_meet() -> None:
    model = "    model = Net().half()\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    apart = f"import torch\ndef one():\n{model}def two():\n    scaler = torch.amp.GradScaler()\n"
    together = f"import torch\ndef one():\n{model}    scaler = torch.amp.GradScaler()\n"
    assert severities(apart, "half-model-with-scaler", top="") == [Severity.WARNING]
    assert severities(together, "half-model-with-scaler", top="") == [Severity.ERROR]
    called = f"{apart}def main():\n    one()\n    two()\n"
    assert severities(called, "half-model-with-scaler", top="") == [Severity.ERROR]


def test_adapters_that_peft_makes_fp32_are_a_warning_alone() -> None:
    lora = "base = Net().half()\nmodel = get_peft_model(base, config{})\ntrainer = Trainer(model=model)\n"
    assert severities(lora.format(""), "half-model-with-scaler") == [Severity.WARNING]


def test_what_is_known_less_surely_is_softer() -> None:
    unknown = LOSS.format("return x / (y + 1e-12)")
    known = LOSS.format("return x / (y.norm() + 1e-12)")
    assert severities(unknown, "eps-vanishes") == [Severity.NOTE]
    assert severities(known, "eps-vanishes") == [Severity.WARNING]
    assert severities(LOSS.format("return torch.log(1 - x + 1e-8)"), "eps-vanishes") == [Severity.WARNING]
    assert severities(LOSS.format("return torch.exp(log_var)"), "exp-without-clip") == [Severity.NOTE]
    assert severities(LOSS.format("return torch.exp(x)"), "exp-without-clip") == [Severity.WARNING]
    assert severities(LOSS.format("return x / mask.sum()"), "division-without-eps") == [Severity.NOTE]


def test_a_file_without_torch_is_not_looked_at() -> None:
    assert found("def loss(x, mask):\n    return x.masked_fill(mask, -1e9)\n", top="") == []


def test_a_comment_silences_one_rule_on_its_line() -> None:
    line = "return x.masked_fill(mask, -1e9) / x.norm()"
    assert {f.rule for f in found(LOSS.format(line))} == {"fill-beyond-fp16", "division-without-eps"}
    silenced = LOSS.format(f"{line}  # rung: ignore[fill-beyond-fp16]")
    assert {f.rule for f in found(silenced)} == {"division-without-eps"}
    both = LOSS.format(f"{line}  # rung: ignore[fill-beyond-fp16, division-without-eps] raw inputs")
    assert found(both) == []


def test_a_comment_on_any_line_of_an_expression_counts_and_one_elsewhere_does_not() -> None:
    spread = LOSS.format("return x.masked_fill(\n        mask,\n        -1e9,  # rung: ignore[fill-beyond-fp16]\n    )")
    assert found(spread) == []
    above = LOSS.format("# rung: ignore[fill-beyond-fp16]\n    return x.masked_fill(mask, -1e9)")
    assert [f.rule for f in found(above)] == ["fill-beyond-fp16"]


def test_a_comment_with_a_name_that_no_rule_has_is_told() -> None:
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
def test_words_that_say_fp16(source: str) -> None:
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
def test_words_that_do_not(source: str) -> None:
    assert not says_fp16(Script(source.encode()))


def test_what_an_fp16_file_imports_runs_in_fp16_too() -> None:
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
