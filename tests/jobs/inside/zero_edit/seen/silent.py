"""Trainings that print nothing and do not know Rung; each gets a folder and returns what JSON can hold."""

import math
import os
import signal
import sys
import time

import torch
from torch import nn


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def batch(size=4):
    x = torch.randn(size, 8)
    return x, x.sum(1, keepdim=True)


def plain(folder, updates=40):
    """Train, rename each checkpoint after writing it, and return the losses and lrs of the loop."""
    net, losses, lrs = model(), [], []
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for update in range(1, updates + 1):
        x, y = batch()
        loss = ((net(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        lrs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if update % 20 == 0:
            torch.save({"model": net.state_dict(), "epoch": update // 20}, folder / "part")
            (folder / "part").replace(folder / f"epoch{update // 20}.pt")
    return {"losses": losses, "lrs": lrs}


def killed_at_nan(folder):
    """Die without a word, right after a backward pass from a NaN."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for update in range(1, 31):
        x, y = batch()
        loss = ((net(x) - y) ** 2).mean() * (math.nan if update == 30 else 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    os.kill(os.getpid(), signal.SIGKILL)


def one_cycle(folder):
    """Train with a schedule that sets the lr by itself, a frozen group, and an optimizer that never steps."""
    net, lrs = model(), []
    torch.optim.SGD(net.parameters(), lr=0.5)
    groups = [{"params": net[0].parameters(), "lr": 0.0}, {"params": net[2].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[0.0, 0.02], total_steps=10)
    for _ in range(9):
        x, y = batch()
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        lrs.append(optimizer.param_groups[1]["lr"])
        optimizer.step()
        schedule.step()
    return lrs


def accumulating(folder):
    """Divide each loss over four micro-batches."""
    net, wholes = model(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for _ in range(6):
        whole = 0.0
        for _ in range(4):
            x, y = batch()
            loss = ((net(x) - y) ** 2).mean() / 4
            loss.backward()
            whole += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        wholes.append(whole)
    return wholes


def thrown(folder):
    """Train at an lr that is far too high, in FP16."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=3000.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(6):
        x, y = batch()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = ((net(x) - y) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def taking_turns(folder):
    """Train two nets in turns, as a GAN does."""
    one, other, losses = model(), model(), []
    first, second = (torch.optim.Adam(each.parameters(), lr=1e-3) for each in (one, other))
    for _ in range(5):
        x, y = batch()
        loss = ((one(x) - y) ** 2).mean()
        first.zero_grad()
        loss.backward()
        first.step()
        losses.append(loss.item())
        (other(x).mean() * 1000).backward()
        second.step()
        second.zero_grad()
    return losses


def second_is_nan(folder):
    """Train two nets in turns, the second of which is NaN from its third update on."""
    one, other = model(), model()
    first, second = (torch.optim.SGD(each.parameters(), lr=1e-3) for each in (one, other))
    for update in range(1, 7):
        x, y = batch()
        for net, optimizer in ((one, first), (other, second)):
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            (loss * (math.nan if net is other and update == 3 else 1.0)).backward()
            optimizer.step()


def train_on(net, updates=20):
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(updates):
        x, y = batch()
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimizer.step()
    return optimizer


def folds(folder):
    """Train a new net in each fold, and keep all of them; then one of them further, twice with a new optimizer."""
    nets = [model() for _ in range(3)]
    kept = [train_on(net) for net in nets]
    train_on(nets[-1], 12)
    train_on(nets[-1], 12)
    return len(kept)


class Wide(nn.Module):
    """Overflows only in FP16."""

    def forward(self, x):
        return (x * 3e4 * 3.0) / 9e4


class Rough(nn.Module):
    """Has a gradient that is not finite at zero, in every precision."""

    def forward(self, x):
        return torch.sqrt(torch.relu(x) * 0.0) + x


def mixed(net, updates, spoil=None, guard=None):
    """Train in FP16 AMP with a scaler; `spoil` changes the input of one update."""
    optimizer, scaler = torch.optim.AdamW(net.parameters(), lr=1e-3), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for update in range(1, updates + 1):
        x, y = batch()
        if spoil is not None:
            x = spoil(update, x)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = ((net(x) - y) ** 2).float().mean()
        if guard is not None:
            guard(loss)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return [each.double().flatten().tolist() for each in net.state_dict().values()]


def one_infinite_batch(folder):
    """Train with one batch that the scaler skips, with dropout and batch norm."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 1))
    return mixed(net, 12, lambda update, x: x * (1e30 if update == 6 else 1.0))


def skipping_among_shared_copies(folder):
    """Train with two batches that the scaler skips, where several updates share a copy from a GPU."""
    torch.manual_seed(0)
    return mixed(nn.Sequential(nn.Linear(8, 1)), 30, lambda update, x: x * (1e30 if update in (14, 20) else 1.0))


def overflowing(folder):
    torch.manual_seed(0)
    mixed(nn.Sequential(nn.Linear(8, 16), Wide(), nn.Linear(16, 1)), 4)


def leaving_out(folder):
    """Leave out the batches whose loss is not finite, which is each of them, without a backward pass."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), Wide(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for number in range(1, 8):
        x, y = batch()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = ((net(x) - y) ** 2).float().mean()
        if not torch.isfinite(loss):
            sys.stdout.write(f"Step {number}: loss={loss.item()}, left out\n")
            sys.stdout.flush()
            continue
        loss.backward()
        optimizer.step()


def pairs(folder):
    """Call the model twice before each backward pass, and look at it after training, with its gradients on."""
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 1))
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(3):
        (x, y), (other, _) = batch(), batch()
        optimizer.zero_grad()
        ((net(x) - net(other) - y) ** 2).mean().backward()
        optimizer.step()
    for _ in range(20):
        net(batch()[0])
    return [each.double().flatten().tolist() for each in net.state_dict().values()]


def rough(folder):
    torch.manual_seed(0)
    mixed(nn.Sequential(nn.Linear(8, 16), Rough(), nn.Linear(16, 1)), 12)


def guarded(folder):
    """End the script after a backward pass on NaN, when the model no longer exists."""

    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        for update in range(1, 20):
            x, y = batch()
            x[0, 0] = math.nan if update == 7 else 0.0
            loss = ((net(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            if math.isnan(loss.item()):
                raise SystemExit(3)
            optimizer.step()

    train()


def layer_by_layer(folder, spoil=lambda hidden: hidden * 1e30 * 1e30, bad=0.0, freeze=False):
    """Call two layers one by one, as a training step may; numbers go wrong between them at update 7."""
    first, last = nn.Linear(8, 16), nn.Linear(16, 1)
    first.requires_grad_(not freeze)
    optimizer = torch.optim.SGD(last.parameters() if freeze else [*first.parameters(), *last.parameters()], lr=1e-2)
    for update in range(1, 8):
        x, y = batch()
        x[0, 0] = bad if update == 7 else 0.0
        hidden = first(x)
        loss = ((last(spoil(hidden) if update == 7 else hidden) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def layer_by_layer_bad_batch(folder):
    layer_by_layer(folder, spoil=lambda hidden: hidden, bad=math.nan)


def behind_a_frozen_layer(folder):
    layer_by_layer(folder, freeze=True)


def half_mask(folder):
    """Fail with a constant that FP16 cannot hold."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(x).masked_fill(x > 9, -1e9)

    torch.manual_seed(0)
    mixed(nn.Sequential(Masked(), nn.Linear(8, 1)), 4)


def quick(folder):
    """Make very many fast updates, the last of them on NaN."""
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    for update in range(2500):
        x = torch.ones(1, 2)
        loss = net(x if update < 2499 else x * math.nan).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def quick_scaled(folder):
    """Make very many fast updates with a scaler and a clip; one that the scaler skips, and the last on NaN."""
    net = nn.Linear(2, 1)
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=1e-4), torch.amp.GradScaler("cpu", init_scale=8.0)
    factors = {2304: math.inf, 2499: math.nan}
    for update in range(2500):
        loss = net(torch.ones(1, 2)).pow(2).sum()
        optimizer.zero_grad()
        scaler.scale(loss * factors[update] if update == 2499 else loss).backward()
        net.weight.grad.mul_(factors.get(update, 1.0))
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def paced(folder, seconds=0.0):
    """Train with a pause in every update."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(100):
        x, y = batch()
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimizer.step()
        time.sleep(seconds)


def slowly_paced(folder):
    paced(folder, 0.01)


def closures(folder):
    """Train with an optimizer that computes the loss several times in one update."""
    net, losses = model(), []
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5)
    x, y = batch()
    for _ in range(3):

        def closure():
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            losses.append(loss.item())
            return loss

        optimizer.step(closure)
    return losses


def resuming(folder):
    """Resume from the file that FILE names, if any."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    torch.save({"model": net.state_dict(), "global_step": 70}, folder / "newest.pt")
    torch.save({"model": net.state_dict()}, folder / "asked.pt")
    name = os.environ.get("FILE")
    if name:
        net.load_state_dict(torch.load(folder / name)["model"])
    for _ in range(3):
        x, y = batch()
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimizer.step()
