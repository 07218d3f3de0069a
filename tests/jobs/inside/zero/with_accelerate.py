"""Trains with Accelerate, first without Rung and then with it, and writes what came of it as JSON lines.

Started by test_accelerating in one process, because importing accelerate takes longer than all these trainings.
"""

import gc
import json
import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

torch.set_num_threads(1)
STATE = str(Path(sys.argv[1]) / "state_8")
DATA = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))


def train(half=False, clip=True, save=None, load=None):
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
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
            loss = torch.nn.functional.mse_loss(model(batch).squeeze(-1), batch.sum(dim=1))
            accelerator.backward(loss)
            if clip and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
        dtypes.add(str(model.weight.dtype))
    if save:
        accelerator.save_state(save)
    return accelerator, model, sorted(dtypes)


def tell(name, **values):
    sys.stdout.write(json.dumps({"name": name, **values}) + "\n")
    sys.stdout.flush()


def weights(model):
    return [value.double().flatten().tolist() for value in model.state_dict().values()]


def ask(**knobs):
    """Go on as if this process had been started with these knobs."""
    from rung_inside import zero

    gc.collect()  # the scaler of the training before is no longer there in a process of its own
    os.environ.update(RUNG_MODE="zero-edit", RUNG_KNOBS=json.dumps(knobs))
    zero.start()


def main():
    without = weights(train()[1])
    ask(lr=None, clip=None, precision=None)
    tell("same", equal=weights(train(save=STATE)[1]) == without)

    for precision, params in (("fp32", None), ("native_fp16", None), ("bf16", None), (None, "fp32")):
        ask(precision=precision, params=params)
        accelerator, _, dtypes = train(half=True)
        tell(precision or "params", dtypes=dtypes, word=accelerator.mixed_precision)

    ask(clip=0.25, accumulation=2)
    accelerator, _, _ = train(clip=False)
    tell("arguments", accumulation=accelerator.gradient_accumulation_steps)

    ask(clip=None)
    os.environ.update(RUNG_CHECKPOINT=STATE, RUNG_CHECKPOINT_STEP="8")
    straight = weights(train(load=STATE)[1])
    tell("resumed", equal=weights(train(load="no_such_state")[1]) == straight)


if __name__ == "__main__":
    main()
