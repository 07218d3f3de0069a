"""A small regression with flags, its own loop, prints and torch.save. It does not know Rung.

`--flaw` chooses what is wrong with it; every failure is torch's own.
"""

import argparse
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--flaw", default="none")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--clip", type=float, default=None)
parser.add_argument("--precision", default="amp_fp16")
parser.add_argument("--growth-interval", type=int, default=2000)
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--save-every", type=int, default=10)
parser.add_argument("--log-every", type=int, default=1)
parser.add_argument("--dir", required=True)
parser.add_argument("--resume", default=None)
args = parser.parse_args()
print(f"started with {vars(args)}", flush=True)

torch.set_num_threads(1)
torch.manual_seed(0)
amp = args.precision == "amp_fp16"
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
if args.precision == "native_fp16" or args.flaw in ("half_model", "double_unscale"):
    model.half()
if args.flaw == "double_unscale" and amp:
    model.float()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
guarded = amp and args.flaw != "weights_nan"  # weights_nan has no scaler; a scaler would skip the step
scaler = torch.amp.GradScaler("cpu", enabled=guarded, growth_interval=args.growth_interval)
teacher = torch.randn(8, 1)
first = 0
if args.resume:
    state = torch.load(args.resume, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if args.flaw != "ignores_lr":
        for group in optimizer.param_groups:
            group["lr"] = args.lr
    first = state["step"]
    print(f"resumed at step {first}", flush=True)
dtype = next(model.parameters()).dtype
if args.flaw == "ignores_lr":
    import rung_inside


def batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 8, generator=generator)
    return x, x @ teacher


def loss_of(step):
    x, y = batch(step)
    with torch.autocast("cpu", dtype=torch.float16, enabled=amp):
        out = model(x.to(dtype))
        if args.flaw == "fp16_range" and step >= 40:
            # A normalisation whose sum of squares is beyond 65504, the end of FP16: inf / inf.
            energy = (out * 2000.0).pow(2).sum()
            out = out * (energy / energy.detach())
        if args.flaw == "data_bug" and step >= 40:
            out = out + torch.log(x[:1, :1].to(out.dtype).abs() * -1.0)
        if args.flaw == "weights_nan" and amp and step == 40:
            # One sample far out of range, and no scaler to skip the step: the weights are NaN from here on.
            out = out * (x[0, 0] * 1e9).half()
        return ((out.float() - y) ** 2).mean()


step = first
while step < args.steps or args.flaw == "never_ends":
    loss = loss_of(step)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if args.clip or args.flaw in ("half_model", "double_unscale"):
        scaler.unscale_(optimizer)
        if args.flaw == "double_unscale" and amp:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip or 1e9)
    scaler.step(optimizer)
    scaler.update()
    step += 1
    if step % args.log_every == 0:
        print(f"step {step} loss {loss.item():.6f} lr {optimizer.param_groups[0]['lr']:g}", flush=True)
        if args.flaw == "ignores_lr":
            rung_inside.report(step, loss=loss.item(), optimizer=optimizer)
    if step % args.save_every == 0:
        path = os.path.join(args.dir, f"step_{step}.pt")
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    if args.flaw == "never_ends":
        time.sleep(0.01)
print(f"val_loss: {loss_of(10_000).item():.6f}", flush=True)
