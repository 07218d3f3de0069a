"""Trains with transformers' Trainer, first without Rung and then with it, and writes what came of it as JSON lines.

Started by test_huggingface in one process, because importing transformers takes longer than all these trainings.
"""

import gc
import json
import os
import sys
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)
FOLDER = Path(sys.argv[1])
DATA = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
ROWS = [{"x": row, "labels": row.sum()} for row in DATA]


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.layer(x).squeeze(-1).float(), labels)}


class Spy(TrainerCallback):
    """Notes what the model is at the first step."""

    def on_step_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        self.dtype = str(model.layer.weight.dtype)
        self.first = getattr(self, "first", state.global_step)


def train(folder, scaler=True, half=False, resume=None, **options):
    torch.manual_seed(0)
    model = Linear().half() if half else Linear()
    options = {"fp16": True, "max_steps": 8, "learning_rate": 0.05, "save_strategy": "no", **options}
    arguments = TrainingArguments(
        str(FOLDER / folder), report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=100, **options
    )
    spy = Spy()
    trainer = Trainer(model=model, args=arguments, train_dataset=ROWS, callbacks=[spy])
    if scaler:
        trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
        trainer.accelerator.native_amp = True
    trainer.train(resume_from_checkpoint=resume)
    return trainer, spy


def tell(name, **values):
    sys.stdout.write(json.dumps({"name": name, **values}) + "\n")
    sys.stdout.flush()


def weights(trainer):
    return [value.double().flatten().tolist() for value in trainer.model.state_dict().values()]


def ask(**knobs):
    """Go on as if this process had been started with these knobs."""
    from rung_inside import zero

    gc.collect()  # the scaler of the training before is no longer there in a process of its own
    os.environ.update(RUNG_MODE="zero-edit", RUNG_KNOBS=json.dumps(knobs))
    zero.start()


def main():
    without = weights(train("without")[0])
    ask(lr=None, clip=None, precision=None)
    trainer, _ = train("same", save_strategy="steps", save_steps=4)
    tell("same", equal=weights(trainer) == without, filter=trainer.args.logging_nan_inf_filter)

    for precision, params in (("fp32", None), ("native_fp16", None), ("bf16", None), (None, "fp32")):
        ask(precision=precision, params=params)
        trainer, spy = train(f"{precision}{params}", half=True)
        flags = [trainer.args.fp16, trainer.args.bf16, trainer.accelerator.mixed_precision]
        tell(precision or "params", dtype=spy.dtype, flags=flags)

    ask(clip=0.25, batch=4, accumulation=2)
    trainer, _ = train("small")
    arguments = trainer.args
    values = [arguments.max_grad_norm, arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps]
    tell("arguments", values=values)

    ask(clip=None)
    os.environ.update(RUNG_CHECKPOINT=str(FOLDER / "same" / "checkpoint-4"), RUNG_CHECKPOINT_STEP="4")
    trainer, spy = train("same", save_strategy="steps", save_steps=4)
    tell("resumed", first=spy.first, equal=weights(trainer) == without)

    os.environ.update(RUNG_CHECKPOINT="", RUNG_ATTEMPT="2", RUNG_CHECKPOINT_DIR=str(FOLDER / "same"))
    trainer, spy = train("same", resume=True)
    tell("anew", first=spy.first)


if __name__ == "__main__":
    main()
