"""Trains with Accelerate, first without Rung and then with it, and writes the results as JSON lines.

test_accelerator.py starts it once, because importing accelerate takes longer than all these trainings.
"""

import sys
from pathlib import Path

import torch
import torch._dynamo  # Accelerate imports it in its first `prepare`; imported here once for all forks
from accelerate import Accelerator
from forked import PRECISIONS, run, weights

torch.set_num_threads(1)
FOLDER = sys.argv[1]
STATE = str(Path(FOLDER) / "state_8")
DATA = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))


def train(half=False, clip=True, save=None, load=None, unit=1.0):
    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=1, cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu")
    accelerator.native_amp = True
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(
        model.half() if half else model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    )
    if load:
        accelerator.load_state(load)
    dtypes = set()
    for batch in DATA.split(8):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(unit * batch).squeeze(-1), batch.sum(dim=1))
            accelerator.backward(loss)
            if clip and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
        dtypes.add(str(model.weight.dtype))
    if save:
        accelerator.save_state(save)
    return {
        "weights": weights(model),
        "dtypes": sorted(dtypes),
        "setting": accelerator.mixed_precision,
        "accumulation": accelerator.gradient_accumulation_steps,
    }


def main():
    run("without", train)
    run("same", lambda: train(save=STATE), {}, RUNG_CHECKPOINT_DIR=FOLDER)
    for name, knobs in PRECISIONS.items():
        run(name, lambda: train(half=True), knobs)
    run("arguments", lambda: train(clip=False), {"clip": 0.25, "accumulation": 2})
    run("too_large", lambda: train(unit=1e6), {})
    run("in_fp32", lambda: train(unit=1e6), {"fp32_modules": "Linear,loss"})
    run("own_load", lambda: train(load=STATE))
    chosen = {"RUNG_CHECKPOINT": STATE, "RUNG_CHECKPOINT_STEP": "8", "RUNG_CHECKPOINT_DIR": FOLDER}
    run("resumed", lambda: train(load="no_such_state"), {}, **chosen)


if __name__ == "__main__":
    main()
