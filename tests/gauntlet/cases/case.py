"""What the cases share: arguments, data, checkpoints, and the training loop of those that do not fail in the loop."""

import argparse
import os

import torch
from torch import nn


def arguments(steps=400, **numbers):
    """Parse the command line: the options of every case, and integers of this case with their defaults."""
    parser = argparse.ArgumentParser()
    for name, default in {"steps": steps, **numbers}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--resume")
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return args


# Data: batch `number` is drawn with the seed `seed + number`, so a resumed run sees the same batches.


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def drawn_classes(logits, generator):
    return torch.multinomial(torch.softmax(logits * 0.7, 1), 1, generator=generator).squeeze(1)


def classes(number, size=64, seed=1000):
    """Return samples of 16 features, each of one of four classes."""
    generator = seeded(seed + number)
    x = torch.randn(size, 16, generator=generator)
    return x, drawn_classes(x @ torch.randn(16, 4, generator=seeded(1)), generator)


def regression(number, size=64, seed=1000):
    """Return samples of 16 features with a noisy linear target."""
    generator = seeded(seed + number)
    x = torch.randn(size, 16, generator=generator)
    return x, x @ torch.randn(16, generator=seeded(1)) + torch.randn(size, generator=generator)


def sentences(number, size=64, seed=1000, shortest=3):
    """Return sentences of up to eight words with their classes; the padding mask is True where there is no word."""
    generator = seeded(seed + number)
    x = torch.randn(size, 8, 16, generator=generator)
    length = torch.randint(shortest, 9, (size, 1), generator=generator)
    pad = torch.arange(8).expand(size, 8) >= length
    mean = x.masked_fill(pad.unsqueeze(2), 0.0).sum(1) / length**0.5
    return x, pad, drawn_classes(mean @ torch.randn(16, 4, generator=seeded(1)), generator)


class Attention(nn.Module):
    """Classifies sentences by attention over their words; each case masks the scores in its own way."""

    def __init__(self):
        super().__init__()
        self.score, self.value, self.head = nn.Linear(16, 1), nn.Linear(16, 32), nn.Linear(32, 4)

    def classify(self, x, weights):
        return self.head((weights.unsqueeze(2) * self.value(x)).sum(1))


# Training


class Checkpoints:
    """Loads `parts` from the checkpoint to resume from, if there is one, and saves them every 50 steps."""

    def __init__(self, args, **parts):
        self.out, self.parts, self.start = args.out, parts, 0
        os.makedirs(args.out, exist_ok=True)
        if args.resume:
            state = torch.load(args.resume)
            for name, part in parts.items():
                part.load_state_dict(state[name])
            self.start = state["step"]

    def log(self, step, loss):
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
            self.save(step)

    def save(self, step):
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({**state, "step": step}, f"{self.out}/step_{step}.pt")


def cross_entropy(model, *data):
    *inputs, y = data
    return nn.functional.cross_entropy(model(*inputs), y)


def cast_cross_entropy(model, x, y):
    """Give the inputs the dtype of the model's parameters, and compute the loss in FP32."""
    return nn.functional.cross_entropy(model(x.to(next(model.parameters()).dtype)).float(), y)


def train(args, batch, criterion, model, optimizer, held_out=None):
    """Train on `criterion(model, *batch(step))`, and validate by it or by another one."""
    checkpoints = Checkpoints(args, model=model, optimizer=optimizer)
    for step in range(checkpoints.start, args.steps):
        data = batch(step)
        optimizer.zero_grad()
        loss = criterion(model, *data)
        loss.backward()
        optimizer.step()
        checkpoints.log(step + 1, loss)
    validate(held_out or criterion, model, batch(-1, size=4000))


def train_amp(args, batch, criterion, model, optimizer, scaler):
    """Train on `criterion(model, *batch(step))` in mixed precision, and validate by it."""
    checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scaler=scaler)
    for step in range(checkpoints.start, args.steps):
        loss = amp_step(args, criterion, batch(step), model, optimizer, scaler)
        checkpoints.log(step + 1, loss)
    validate(criterion, model, batch(-1, size=4000))


def amp_step(args, criterion, data, model, optimizer, scaler):
    """Update the model in mixed precision and return the loss."""
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=not args.fixed):
        loss = criterion(model, *data)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def validate(criterion, model, data):
    """Print the loss on held-out data."""
    with torch.no_grad():
        print(f"val_loss {criterion(model, *data).item():.5f}")


# Frameworks


class Rows(torch.utils.data.Dataset):
    """Rows of named tensors, as HF Trainer takes them."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(self.columns["labels"])

    def __getitem__(self, index):
        return {name: column[index] for name, column in self.columns.items()}


def hf_settings(args):
    """Return what all cases give to TrainingArguments."""
    plain = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "seed": 0, "logging_steps": 25, "save_steps": 50}
    return {"output_dir": args.out, "max_steps": args.steps, "per_device_train_batch_size": 64, **plain}


def lightning_settings(args):
    """Return what all cases give to Lightning's Trainer."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    saves = ModelCheckpoint(dirpath=args.out, filename="{step}", every_n_train_steps=50, save_top_k=-1)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return {"max_steps": args.steps, "accelerator": "cpu", "devices": 1, "callbacks": [saves], **quiet}


def train_accelerated(args, accelerator, criterion, loader, model, optimizer, scheduler=None):
    """Train on `criterion(model, *batch)`, repeating the loader until the last step."""
    step = 0
    if args.resume:
        accelerator.load_state(args.resume)
        step = int(args.resume.rpartition("_")[2])
    while step < args.steps:
        for batch in loader:
            loss = criterion(model, *batch)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"step: {step} train_loss: {loss.item():.4f}")
                accelerator.save_state(f"{args.out}/step_{step}")
            if step >= args.steps:
                break
