"""Snippets for the tests of the doctor's rules: for each rule those that it finds, and similar ones that are right."""

from __future__ import annotations

# The start of a file that trains in FP16; a snippet follows it.
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

# By rule: the snippets with a finding, then the snippets without one.
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
