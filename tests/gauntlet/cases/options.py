"""The command line of the families, and what follows from it: learning rate, schedule, batches and log."""

import argparse
import json
import math

import torch
from tuned import LR

# Steps of an epoch, of a warm-up and between two checkpoints; the share of the run after which a late fault begins.
EPOCH, WARM_UP, SAVE, LATE = 100, 200, 100, 0.7
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=LR, default="gpt")
    parser.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="adam")
    parser.add_argument("--lr", type=float, help="default: the tuned one, --lr-times too high")
    parser.add_argument("--lr-times", type=float, default=1.0)
    parser.add_argument("--late-times", type=float, default=1.0, help="so much higher does a late restart begin")
    parser.add_argument("--clip", type=float)
    parser.add_argument("--schedule", choices=("constant", "cosine", "restart"), default="constant")
    parser.add_argument("--warmup", action="store_true")
    parser.add_argument("--precision", choices=DTYPES, default="float32")
    parser.add_argument("--fault", choices=("none", "outliers", "burst", "noise"), default="none")
    parser.add_argument("--log", choices=("every1", "every10", "epoch", "silent"), default="every10")
    parser.add_argument("--config", help="a JSON file with lr and clip")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--resume")
    parser.add_argument("--fixed", action="store_true", help="without the fault, in FP32")
    parser.add_argument("--arc", action="store_true", help="with the controller of the package arc-training")
    return settled(parser.parse_args())


def settled(args):
    """Return the arguments with the values of the config file, or with those of a healthy run."""
    if args.config:
        with open(args.config) as file:
            found = json.load(file)
        args.lr, args.clip = found["lr"], found["clip"]
    if args.fixed:
        args.lr, args.lr_times, args.late_times, args.precision = None, 1.0, 1.0, "float32"
        args.fault = "noise" if args.fault == "noise" else "none"
    args.lr = args.lr or LR[args.model][args.optimizer] * args.lr_times
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return args


def optimizer_of(args, parameters):
    if args.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=args.lr)
    return torch.optim.SGD(parameters, lr=args.lr, momentum=0.9 if args.optimizer == "momentum" else 0.0)


def shape_of(args):
    """Return the schedule: the share of the learning rate at a step."""

    def shape(step):
        warm = min(1.0, (step + 1) / WARM_UP) if args.warmup else 1.0
        late = int(args.steps * LATE)
        if args.schedule == "restart":
            return warm * (args.late_times * cosine(step - late, args.steps - late) if step >= late else 1.0)
        return warm * (cosine(step, args.steps) if args.schedule == "cosine" else 1.0)

    return shape


def cosine(step, steps):
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))


def scheduler_of(args, optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, shape_of(args))


def set_lr(args, optimizer, scheduler):
    """Set the learning rate of the command line, because the states that were loaded bring back the old one."""
    scheduler.base_lrs = [args.lr]
    for group in optimizer.param_groups:
        group["initial_lr"] = args.lr
        group["lr"] = args.lr * shape_of(args)(scheduler.last_epoch)


def batch_of(args, data, step):
    """Return the batch of a step and the weight of its loss, with what is wrong with the data."""
    x, y = data.batch(step)
    late = int(args.steps * LATE)
    if args.fault == "outliers" and step % 50 == 33:
        return x, y, 1e6
    if args.fault == "burst" and late <= step < late + 10:
        return x, y.roll(1, 0), 1e4
    if args.fault == "noise":
        wrong = torch.rand(len(y), generator=torch.Generator().manual_seed(step)) < 0.4
        y = torch.where(wrong.view(-1, *[1] * (y.dim() - 1)), y.roll(1, 0), y)
    return x, y, 1.0


class Log:
    """Prints the loss at every step, at every tenth, its mean over each epoch, or nothing."""

    def __init__(self, args):
        self.style, self.steps, self.losses = args.log, args.steps, []

    def __call__(self, step, loss, lr):
        self.losses.append(loss.detach())
        if self.style == "every1" or (self.style == "every10" and step % 10 == 0):
            print(f"step {step}/{self.steps} loss {loss.item():.4f} lr {lr:.3g}", flush=True)
        if step % EPOCH == 0:
            if self.style == "epoch":
                mean = torch.stack(self.losses).mean().item()
                print(f"epoch {step // EPOCH}: step {step} train_loss {mean:.4f}", flush=True)
            self.losses.clear()


def validate(data, model):
    """Print the loss on held-out data."""
    x, y = data.batch(-1, 2000)
    with torch.no_grad():
        print(f"val_loss {data.loss(model(x), y).item():.5f}")
