"""Trains with Lightning, first without Rung and then with it, and writes what came of it as JSON lines.

Started by test_lightning in one process, because importing lightning takes longer than all these trainings. The first
argument is the package: lightning.pytorch or pytorch_lightning.
"""

import gc
import importlib
import json
import os
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
pl = importlib.import_module(sys.argv[1])
MixedPrecision = importlib.import_module(f"{sys.argv[1]}.plugins").MixedPrecision
DATA = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))


class Linear(pl.LightningModule):
    def __init__(self, manual=False):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.automatic_optimization = not manual
        self.dtypes, self.first = set(), None

    def training_step(self, batch, _):
        self.dtypes.add(str(self.layer.weight.dtype))
        self.first = self.global_step if self.first is None else self.first
        loss = torch.nn.functional.mse_loss(self.layer(batch).squeeze(-1).float(), batch.sum(dim=1))
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def train(steps=8, half=False, manual=False, save=None, ckpt_path=None, **options):
    torch.manual_seed(0)
    model = Linear(manual).half() if half else Linear(manual)
    if "precision" not in options:
        options["plugins"] = [MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))]
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        **options,
    )
    trainer.fit(model, torch.utils.data.DataLoader(DATA, batch_size=8), ckpt_path=ckpt_path)
    if save:
        trainer.save_checkpoint(save)
    return trainer, model


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
    without, by_hand = weights(train()[1]), weights(train(manual=True)[1])
    ask(lr=None, clip=None, precision=None)
    from rung_inside.zero import live

    half_way = str(Path(sys.argv[2]) / "half-way.ckpt")
    tell("same", equal=weights(train()[1]) == without)
    tell("counted", updates=live.updates())
    train(steps=4, save=half_way)
    before = live.updates()
    tell("manual", equal=weights(train(manual=True)[1]) == by_hand)
    tell("counted_by_hand", updates=live.updates() - before)

    for precision, params in (("fp32", None), ("native_fp16", None), ("bf16", None), (None, "fp32")):
        ask(precision=precision, params=params)
        trainer, model = train(half=True)
        tell(precision or "params", dtypes=sorted(model.dtypes), word=trainer.precision)
    ask(precision="fp32")
    trainer, model = train(precision="16-true")
    tell("from_true", dtypes=sorted(model.dtypes), word=trainer.precision)

    ask(clip=0.25, accumulation=2)
    trainer, _ = train(gradient_clip_val=5.0)
    tell("arguments", values=[trainer.gradient_clip_val, trainer.accumulate_grad_batches])
    ask(clip=0.25)
    train(manual=True)
    tell("manual_clip")
    ask(clip=0.25, precision="fp32")
    train()
    tell("fp32_clip")

    ask(clip=None)
    os.environ.update(RUNG_CHECKPOINT=half_way, RUNG_CHECKPOINT_STEP="4")
    trainer, model = train(ckpt_path="no such word")
    tell("resumed", first=model.first, last=trainer.global_step)


if __name__ == "__main__":
    main()
