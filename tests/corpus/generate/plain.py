"""Prints a real FP16 training in the styles that people write themselves: `python plain.py STYLE FAULT [STEPS]`."""

import csv
import json
import logging
import sys
import time

import torch
from tiny import Net, batch, rate

style, fault = sys.argv[1:3]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 40
PER_EPOCH = 10


def train():
    """Yield (step, values) after each step of a training under autocast and a GradScaler."""
    net = Net(fault)
    if fault == "unscale":
        net = net.half()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate(fault))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=1 if fault == "thrash" else 2000)
    for step in range(steps):
        if fault == "disk_full" and step == 20:
            torch.save(net.state_dict(), "/dev/full")
        began = time.perf_counter()
        x, y = batch()
        with torch.autocast("cpu", dtype=torch.float16):
            error = net(x.half() if fault == "unscale" else x) - y
            ce, kd = error.float().square().mean(), error.float().abs().mean()
            loss = ce + 0.1 * kd
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        yield (
            step,
            {
                "loss": loss.item(),
                "ce": ce.item(),
                "kd": kd.item(),
                "grad_norm": norm.item(),
                "lr": optimizer.param_groups[0]["lr"],
                "scale": scaler.get_scale(),
                "ms": 1000 * (time.perf_counter() - began),
            },
        )


def say(text):
    print(text, flush=True)


def show_nanogpt():
    for step, v in train():
        if step % 10 == 0:
            say(f"step {step}: train loss {v['loss']:.4f}, val loss {v['loss'] + 0.05:.4f}")
        say(f"iter {step}: loss {v['loss']:.4f}, time {v['ms']:.2f}ms, mfu -100.00%")


def show_brackets():
    for step, v in train():
        at = f"Epoch: [{step // PER_EPOCH}][{step % PER_EPOCH:>3}/{PER_EPOCH}]"
        say(
            f"{at}\tTime {v['ms'] / 1000:6.3f} ({v['ms'] / 1000:6.3f})\tLoss {v['loss']:.4e} ({v['loss']:.4e})\tLR {v['lr']:.3e}"
        )


def show_parts():
    for step, v in train():
        say(
            f"[{step:05d}/{steps}] total_loss={v['loss']:.4f}, kd={v['kd']:.4f}, ce={v['ce']:.4f} | gnorm {v['grad_norm']:.3f} | scale {v['scale']:.0f}"
        )


def show_logging():
    logging.basicConfig(
        format="%(asctime)s - %(name)s - %(levelname)s - %(message)s", level=logging.INFO, stream=sys.stdout
    )
    log = logging.getLogger("train")
    log.info("best_loss=inf, patience=5, nan_to_num=False")
    for step, v in train():
        log.info(
            "Step %d | Loss: %.5f | Grad Norm: %.3f | LR: %.2e | Scale: %.1f",
            step,
            v["loss"],
            v["grad_norm"],
            v["lr"],
            v["scale"],
        )


def show_loguru():
    from loguru import logger

    logger.remove()
    logger.add(sys.stdout, colorize=False)
    for step, v in train():
        logger.info(
            f"epoch={step // PER_EPOCH} step={step} loss={v['loss']:.6f} lr={v['lr']:.1e} it/s={1000 / v['ms']:.1f}"
        )


def show_jsonl():
    for step, v in train():
        say(
            json.dumps(
                {
                    "step": step,
                    "train/loss": v["loss"],
                    "lr": v["lr"],
                    "grad_norm": v["grad_norm"],
                    "loss_scale": v["scale"],
                    "samples_per_second": 32000 / v["ms"],
                }
            )
        )


def show_csv():
    rows = csv.writer(sys.stdout)
    rows.writerow(["epoch", "step", "train_loss", "grad_norm", "lr", "loss_scale"])
    for step, v in train():
        rows.writerow([step // PER_EPOCH, step, v["loss"], v["grad_norm"], v["lr"], v["scale"]])
        sys.stdout.flush()


def show_logfmt():
    for step, v in train():
        say(
            f'time=2026-03-01T10:00:{step % 60:02d}Z level=info msg="train step" step={step} loss={v["loss"]:.5g} grad_norm={v["grad_norm"]:.4g} lr={v["lr"]:g} loss_scale={v["scale"]:g} tokens_per_second={32000 / v["ms"]:.0f}'
        )


def show_tqdm():
    from tqdm import tqdm

    steps_done = train()
    for epoch in range(steps // PER_EPOCH):
        bar = tqdm(range(PER_EPOCH), desc=f"Epoch {epoch + 1}/{steps // PER_EPOCH}", mininterval=0)
        for _ in bar:
            _, v = next(steps_done)
            bar.set_postfix(loss=f"{v['loss']:.4f}", lr=v["lr"], scale=v["scale"])


def show_totals():
    from tqdm import tqdm

    bar = tqdm(train(), total=steps, desc="Training", mininterval=0)
    for _, v in bar:
        bar.set_postfix_str(f"loss={v['loss']:.3f}, gnorm={v['grad_norm']:.2e}")


def show_tutorial():
    running = 0.0
    for step, v in train():
        running += v["loss"]
        if step % 5 == 4:
            say(f"[{step // PER_EPOCH + 1}, {step % PER_EPOCH + 1:5d}] loss: {running / 5:.3f}")
            running = 0.0


def show_examples():
    for step, v in train():
        done = step % PER_EPOCH
        say(
            f"Train Epoch: {step // PER_EPOCH + 1} [{32 * done}/{32 * PER_EPOCH} ({100 * done / PER_EPOCH:.0f}%)]\tLoss: {v['loss']:.6f}"
        )


def show_tensor():
    for step, v in train():
        say(f"step {step} loss {torch.tensor(v['loss'])} grad {torch.tensor([v['grad_norm']])}")


def show_timm():
    for step, v in train():
        done, rate_ = step % PER_EPOCH, 32000 / v["ms"]
        say(
            f"Train: {step // PER_EPOCH} [{done:>4d}/{PER_EPOCH} ({100 * done / (PER_EPOCH - 1):>3.0f}%)]  Loss: {v['loss']:.4g} ({v['loss']:.3g})  Time: {v['ms'] / 1000:.3f}s, {rate_:>7.2f}/s  ({v['ms'] / 1000:.3f}s, {rate_:>7.2f}/s)  LR: {v['lr']:.3e}  Data: 0.001 (0.001)"
        )


def show_pandas():
    import pandas

    rows = [
        {"epoch": step // PER_EPOCH, "step": step, "loss": v["loss"], "val_acc": float("nan")} for step, v in train()
    ]
    say(pandas.DataFrame(rows).to_string())


def show_records():
    for step, v in train():
        values = " ".join(f"{name}={v[name]!r}" for name in ("loss", "lr", "grad_norm", "scale", "kd", "ce"))
        say(f"rung| step step={step} {values}")


def show_lines():
    for step, v in train():
        say(f"loss: {v['loss']}")
        say(f"Step {step} done. Learning rate: {v['lr']}")


def show_megatron():
    for step, v in train():
        say(
            f" iteration {step + 1:8d}/{steps:8d} | consumed samples: {32 * (step + 1):12d} | elapsed time per iteration (ms): {v['ms']:.1f} |"
            f" learning rate: {v['lr']:.6E} | global batch size: {32:5d} | lm loss: {v['loss']:.6E} | loss scale: {v['scale']:.1f} |"
            f" grad norm: {v['grad_norm']:.3f} | number of skipped iterations: {int(v['grad_norm'] - v['grad_norm'] != 0):3d} | number of nan iterations: {0:3d} |"
        )


globals()[f"show_{style}"]()
