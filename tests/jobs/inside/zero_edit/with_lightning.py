"""Trains with Lightning, first without Rung and then with it, and writes the results as JSON lines.

test_lightning_trainer.py starts it once, because importing lightning takes longer than all these trainings. The first
argument is the package: lightning.pytorch or pytorch_lightning.
"""

import importlib
import os
import signal
import sys
from pathlib import Path

import torch
from forked import PRECISIONS, run, weights

torch.set_num_threads(1)
pl = importlib.import_module(sys.argv[1])
MixedPrecision = importlib.import_module(f"{sys.argv[1]}.plugins").MixedPrecision
FOLDER = sys.argv[2]
HALF_WAY = str(Path(FOLDER) / "half-way.ckpt")
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
    return {
        "weights": weights(model),
        "dtypes": sorted(model.dtypes),
        "first": model.first,
        "setting": trainer.precision,
        "arguments": [trainer.gradient_clip_val, trainer.accumulate_grad_batches],
    }


def saved_to(folder=None):
    """Return where a ModelCheckpoint has saved that got this folder."""
    callback = importlib.import_module(f"{sys.argv[1]}.callbacks").ModelCheckpoint(dirpath=folder)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = pl.Trainer(max_steps=8, accelerator="cpu", callbacks=[callback], **quiet)
    trainer.fit(Linear(), torch.utils.data.DataLoader(DATA, batch_size=8))
    return {"folder": callback.dirpath}


def requeues():
    """Return whether Lightning would queue its job in Slurm again at USR1 while it trains."""
    job = {"NTASKS": "1", "PROCID": "0", "LOCALID": "0", "NODEID": "0", "JOB_ID": "7", "NTASKS_PER_NODE": "1"}
    os.environ.update({f"SLURM_{name}": value for name, value in job.items()})
    environment = importlib.import_module(f"{sys.argv[1]}.plugins.environments").SLURMEnvironment()
    seen = []

    class Watching(Linear):
        def training_step(self, batch, index):
            seen.append(signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL)
            return super().training_step(batch, index)

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = pl.Trainer(max_steps=1, accelerator="cpu", plugins=[environment], enable_checkpointing=False, **quiet)
    trainer.fit(Watching(), torch.utils.data.DataLoader(DATA, batch_size=8))
    return {"requeues": seen}


def counted(**options):
    from rung_inside.zero_edit import run_state

    return {**train(**options), "updates": run_state.updates()}


def main():
    run("without", train)
    run("without_by_hand", lambda: train(manual=True))
    run("slurm_without", requeues)
    run("slurm", requeues, {})
    run("same", counted, {})
    run("by_hand", lambda: counted(manual=True), {})
    run("saved", lambda: train(steps=4, save=HALF_WAY), {}, RUNG_CHECKPOINT_DIR=FOLDER)
    of_ckpt = {"RUNG_CHECKPOINT_DIR": FOLDER, "RUNG_CHECKPOINT_PATTERN": "*.ckpt"}
    run("own_folder", saved_to, {}, **of_ckpt)
    run("script_folder", lambda: saved_to(str(Path(FOLDER) / "script")), {}, **of_ckpt)
    run("other_pattern", saved_to, {}, **{**of_ckpt, "RUNG_CHECKPOINT_PATTERN": "step_*.pt"})
    for name, knobs in PRECISIONS.items():
        run(name, lambda: train(half=True), knobs)
    run("from_true", lambda: train(precision="16-true"), {"precision": "fp32"})
    run("tightened", lambda: train(gradient_clip_val=5.0), {"clip": 0.25, "accumulation": 2})
    run("clip_by_hand", lambda: train(manual=True), {"clip": 0.25})
    run("clip_in_fp32", train, {"clip": 0.25, "precision": "fp32"})
    chosen = {"RUNG_CHECKPOINT": HALF_WAY, "RUNG_CHECKPOINT_STEP": "4", "RUNG_CHECKPOINT_DIR": FOLDER}
    run("resumed", lambda: train(ckpt_path="no such word"), {}, **chosen)
    own = Path(FOLDER) / "own"
    by_rung = {"RUNG_CHECKPOINT_BY": "rung", "RUNG_CHECKPOINT_EVERY": "2", "RUNG_CHECKPOINT_DIR": str(own)}
    run("by_rung", lambda: {**train(), "saved": own.exists()}, {}, **by_rung)


if __name__ == "__main__":
    main()
