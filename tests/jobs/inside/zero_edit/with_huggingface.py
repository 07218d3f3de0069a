"""Trains with transformers' Trainer, first without Rung and then with it, and writes the results as JSON lines.

test_transformers_trainer.py starts it once, because importing transformers takes longer than all these trainings.
"""

import sys
from pathlib import Path

import torch
from forked import PRECISIONS, run, weights
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
    """Records the dtype of the model at the first step."""

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
    return {
        "weights": weights(trainer.model),
        "dtype": spy.dtype,
        "first": spy.first,
        "flags": [arguments.fp16, arguments.bf16, trainer.accelerator.mixed_precision],
        "arguments": [
            arguments.max_grad_norm,
            arguments.per_device_train_batch_size,
            arguments.gradient_accumulation_steps,
            arguments.logging_nan_inf_filter,
        ],
    }


def main():
    saving = {"save_strategy": "steps", "save_steps": 4}
    same, at_four = str(FOLDER / "same"), str(FOLDER / "same" / "checkpoint-4")
    run("without", lambda: train("without"))
    run("same", lambda: train("same", **saving), {}, RUNG_CHECKPOINT_DIR=same)
    for name, knobs in PRECISIONS.items():
        run(name, lambda name=name: train(name, half=True), knobs)
    run("arguments", lambda: train("small"), {"clip": 0.25, "batch": 4, "accumulation": 2})
    chosen = {"RUNG_CHECKPOINT": at_four, "RUNG_CHECKPOINT_STEP": "4", "RUNG_CHECKPOINT_DIR": same}
    run("resumed", lambda: train("same"), {}, **chosen)
    passed_over = {"RUNG_CHECKPOINT": "", "RUNG_ATTEMPT": "2", "RUNG_CHECKPOINT_DIR": same}
    run("anew", lambda: train("same", resume=True), {}, **passed_over)
    own = FOLDER / "own"
    by_rung = {"RUNG_CHECKPOINT_BY": "rung", "RUNG_CHECKPOINT_EVERY": "2", "RUNG_CHECKPOINT_DIR": str(own)}
    run("by_rung", lambda: {**train("by_rung"), "saved": own.exists()}, {}, **by_rung)


if __name__ == "__main__":
    main()
