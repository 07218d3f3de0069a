"""Trains a small DBNet, which finds the lines of text in an image, with Lightning.

    python train.py trainer.precision=16-mixed trainer.gradient_clip_val=5.0 trainer.accumulate_grad_batches=2

The settings are those of config.yaml; words such as `optimizer.lr=0.001` override them. The images are drawn by the
script itself. It ends with the H-mean of precision and recall on images it has not seen.
"""

from __future__ import annotations

import platform
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

BINARIZATION_STEEPNESS = 50.0  # k of the paper
THRESHOLD_WEIGHT = 10.0
BORDER = 3.0  # pixels around a box's edge in which the threshold map is learned
FAINTEST = 0.5  # grey levels of contrast; less is taken for an empty page
HELD_OUT_SEED = 1_000_003
LINES, CLUTTER, CANVAS = 3, 3, 64


@dataclass(frozen=True)
class Size:
    """How much of everything there is: an image is CANVAS pixels wide, times `zoom`."""

    width: int
    depth: int
    zoom: int
    images: int
    held_out: int
    batch: int


SIZES = {
    "cpu": Size(width=16, depth=3, zoom=1, images=192, held_out=384, batch=8),
    "gpu": Size(width=256, depth=6, zoom=4, images=384, held_out=512, batch=16),
}


def draw(count: int, zoom: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images of lines of text among fences and noise, and the boxes of the lines (left, top, right, bottom)."""
    random = torch.Generator().manual_seed(seed)
    boxes, fences = _boxes(count, LINES, random), _boxes(count, CLUTTER, random)
    letters = (torch.rand(count, CANVAS, CANVAS, generator=random) < 0.55).float()
    letters[:, :, ::4] = 0.0
    bars = torch.zeros(CANVAS, CANVAS)
    bars[:, ::2] = 1.0
    ink = 3.5 + 8.5 * torch.rand(count, 1, 1, generator=random)
    paper = 150 + 90 * torch.rand(count, 1, 1, generator=random)
    shade = torch.linspace(-4, 4, CANVAS) * torch.randn(count, 1, 1, generator=random)
    inside_text, inside_fence = _covered(boxes, CANVAS), _covered(fences, CANVAS)
    image = paper + shade - ink * (letters * inside_text + bars * inside_fence * (1 - inside_text))
    image = image.repeat_interleave(zoom, 1).repeat_interleave(zoom, 2)
    image = (image + 2 * torch.randn(image.shape, generator=random)).round().clamp(0, 255)
    return image[:, None], boxes * zoom


def _boxes(count: int, each: int, random: torch.Generator) -> Tensor:
    """Return boxes of which one image's do not overlap: each has a band of the image to itself."""
    band = CANVAS / each
    height = 6 + torch.rand(count, each, generator=random) * (band - 10)
    width = 14 + torch.rand(count, each, generator=random) * 40
    left = torch.rand(count, each, generator=random) * (CANVAS - width)
    top = torch.arange(each) * band + 1 + torch.rand(count, each, generator=random) * (band - 2 - height)
    return torch.stack([left, top, left + width, top + height], dim=-1).round()


def _depth(boxes: Tensor, side: int) -> Tensor:
    """Return how far inside the nearest box each pixel lies, in pixels; negative outside."""
    at = torch.arange(side, device=boxes.device) + 0.5
    left, top, right, bottom = (boxes[..., i, None] for i in range(4))
    across, down = torch.minimum(at - left, right - at), torch.minimum(at - top, bottom - at)
    return torch.minimum(across[:, :, None, :], down[:, :, :, None]).amax(dim=1)


def _covered(boxes: Tensor, side: int) -> Tensor:
    return (_depth(boxes, side) > 0).float()


class Conv3x3(nn.Module):
    """A convolution, batch norm and ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, channels, 3, 3))
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            x = functional.conv2d(x, self.weight, padding=1)
        else:
            # The same by a product of matrices: torch's FP16 convolution on a CPU has a gradient 100 times slower.
            columns = functional.unfold(x, 3, padding=1)
            x = torch.matmul(self.weight.flatten(1), columns).view_as(x)
        out: Tensor = functional.relu(self.norm(x))
        return out


class Head(nn.Module):
    """From a quarter of the resolution to one map of all of it, by two transposed convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up1, self.norm, self.up2 = nn.Linear(width, width), nn.BatchNorm2d(width // 4), nn.Linear(width // 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        # A transposed convolution whose stride is its kernel is a linear layer whose outputs are laid side by side.
        x = functional.pixel_shuffle(self.up1(x.movedim(1, -1)).movedim(-1, 1), 2)
        x = functional.relu(self.norm(x))
        return functional.pixel_shuffle(self.up2(x.movedim(1, -1)).movedim(-1, 1), 2)


class DBNet(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config, self.size = config, SIZES[config["size"]]
        width = self.size.width
        self.stem = nn.Linear(16, width)
        self.backbone = nn.ModuleList([Conv3x3(width) for _ in range(self.size.depth)])
        self.probability, self.threshold = Head(width), Head(width)
        self.hits = torch.zeros(3, dtype=torch.float64)

    def evened(self, image: Tensor) -> Tensor:
        """Return an image of grey levels (0 to 255) with the same brightness and contrast in all of its tiles."""
        tile = CANVAS // 4 * self.size.zoom
        mean, square = functional.avg_pool2d(image, tile), functional.avg_pool2d(image * image, tile)
        spread = (square - mean * mean).clamp(min=0.0).sqrt().clamp(min=FAINTEST)
        whole = image.shape[-2:]
        return (image - functional.interpolate(mean, whole)) / functional.interpolate(spread, whole)

    def features(self, image: Tensor) -> Tensor:
        image = self.evened(image)
        x: Tensor = self.stem(functional.pixel_unshuffle(image, 4).movedim(1, -1)).movedim(-1, 1)
        for layer in self.backbone:
            x = x + layer(x)
        return x

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the probability map, the threshold map and the binary map that both give."""
        x = self.features(image)
        maps = self.probability(x)[:, 0], self.threshold(x)[:, 0]
        if self.config["fixed"]:
            with torch.autocast(self.device.type, enabled=False):
                return self.binarize(maps[0].float(), maps[1].float())
        return self.binarize(*maps)

    def binarize(self, probability: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p, t = torch.sigmoid(probability), torch.sigmoid(threshold)
        return p, t, torch.sigmoid(BINARIZATION_STEEPNESS * (p - t))

    def loss(self, image: Tensor, boxes: Tensor) -> Tensor:
        p, t, b = self(image)
        depth = _depth(boxes, image.shape[-1])
        text, border = (depth > self.size.zoom).float(), (depth.abs() < BORDER * self.size.zoom).float()
        wanted = 0.7 - 0.4 * depth.abs() / (BORDER * self.size.zoom)
        off = ((t - wanted).abs() * border).sum() / border.sum()
        loss: Tensor = balanced_bce(p, text) + balanced_bce(b, text) + dice(b, text) + THRESHOLD_WEIGHT * off
        return loss

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        loss = self.loss(*batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        image, boxes = batch
        found = self(image)[2] > 0.5
        text = _depth(boxes, image.shape[-1]) > self.size.zoom
        self.hits += torch.stack([(found & text).sum(), found.sum(), text.sum()]).cpu()

    def on_validation_epoch_end(self) -> None:
        both, found, text = self.hits.tolist()
        self.hits = torch.zeros_like(self.hits)
        precision, recall = both / max(found, 1), both / max(text, 1)
        self.log("val/hmean", 2 * precision * recall / max(precision + recall, 1e-9))
        self.log_dict({"val/precision": precision, "val/recall": recall})

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), nesterov=True, **self.config["optimizer"])
        steps = int(self.trainer.estimated_stepping_batches)
        warm_up = max(1, steps // 10)
        plan = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / warm_up, max(0.0, 1 - step / steps))
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plan, "interval": "step"}}

    def train_dataloader(self) -> DataLoader[Any]:
        # New images in every epoch, by the epoch's own seed: a run that was resumed sees what it would have seen.
        seed = self.config["seed"] * 1000 + self.trainer.current_epoch
        return DataLoader(TensorDataset(*draw(self.size.images, self.size.zoom, seed)), self.size.batch)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(*draw(self.size.held_out, self.size.zoom, HELD_OUT_SEED)), self.size.batch)


def balanced_bce(predicted: Tensor, text: Tensor) -> Tensor:
    """Return the cross entropy in which text and background weigh the same, however few pixels are text."""
    share = text.mean()
    loss = text * torch.log(predicted + 1e-8) * (1 - share) + (1 - text) * torch.log(1 - predicted + 1e-8) * share
    return -loss.mean() / (2 * share * (1 - share))


def dice(predicted: Tensor, text: Tensor) -> Tensor:
    return 1 - 2 * (predicted * text).sum() / ((predicted * predicted).sum() + text.sum() + 1e-6)


class Progress(lightning.Callback):  # type: ignore[misc]
    """Prints a line per optimizer step, and keeps the settings of this launch after a checkpoint was loaded."""

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        config = pl_module.config
        # A checkpoint brings the lr and the scaler's settings of the run that wrote it; those asked for now hold.
        for plan in trainer.lr_scheduler_configs:
            plan.scheduler.base_lrs = [config["optimizer"]["lr"]]
        for group in trainer.optimizers[0].param_groups:
            group["lr"] *= config["optimizer"]["lr"] / group["initial_lr"]
            group["initial_lr"] = config["optimizer"]["lr"]
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            scaler.set_growth_interval(config["scaler"]["growth_interval"])
        if trainer.global_step:
            print(f"resumed at step {trainer.global_step}", flush=True)

    def on_before_optimizer_step(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        self.norm = torch.nn.utils.get_total_norm(gradients).item()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        loss, lr = trainer.callback_metrics["train/loss"].item(), trainer.optimizers[0].param_groups[0]["lr"]
        where = f"Epoch {trainer.current_epoch}: step={trainer.global_step}"
        print(f"{where} train/loss={loss:.4f} grad_norm={self.norm:.4f} lr={lr:.3g}", flush=True)


def trainer_for(config: dict[str, Any]) -> lightning.Trainer:
    settings = dict(config["trainer"])
    on_gpu = config["size"] == "gpu"
    # One process, whatever cluster or MPI there is around it.
    settings["plugins"] = [LightningEnvironment()]
    if settings["precision"] == "16-mixed":
        device = "cuda" if on_gpu else "cpu"
        # Lightning makes bf16 of 16-mixed on a CPU, unless it is handed the precision as an object.
        scaler = torch.amp.GradScaler(device, **config["scaler"])
        settings["plugins"].append(MixedPrecision("16-mixed", device, scaler=scaler))
        del settings["precision"]
    keep = ModelCheckpoint(config["output_dir"], "{step}", save_top_k=-1, every_n_epochs=1)
    return lightning.Trainer(
        **settings,
        accelerator="gpu" if on_gpu else "cpu",
        devices=1,
        callbacks=[keep, Progress()],
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        check_val_every_n_epoch=settings["max_epochs"],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=config["output_dir"],
    )


def overridden(words: list[str]) -> dict[str, Any]:
    """Return the settings of config.yaml with the words of the command line over them."""
    config: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "config.yaml").read_text())
    for word in words:
        key, _, text = ("fixed=true" if word == "--fixed" else word).partition("=")
        *groups, name = key.split(".")
        place = config
        for group in groups:
            place = place.get(group, {})
        if name not in place or isinstance(place[name], dict):
            raise ValueError(f"{word}: config.yaml has no such setting")
        value = yaml.safe_load(text)
        place[name] = float(value) if isinstance(place[name], float) else value
    if config["size"] not in SIZES:
        raise ValueError(f"size={config['size']}: it is one of {', '.join(SIZES)}")
    if config["size"] == "gpu" and not torch.cuda.is_available():
        raise ValueError("size=gpu: there is no CUDA device")
    return config


def main() -> None:
    try:
        config = overridden(sys.argv[1:])
    except (ValueError, AttributeError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        sys.exit(2)
    # The images are made in memory and need no workers.
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*exists and is not empty.*")
    if platform.machine() == "aarch64":
        # torch gives FP16 products to oneDNN there, which has no fast code for them; its own is 20 times as fast.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    lightning.seed_everything(config["seed"], verbose=False)
    model, trainer = DBNet(config), trainer_for(config)
    trainer.fit(model, ckpt_path=config["ckpt_path"])
    for name in ("val/precision", "val/recall", "val/hmean"):
        print(f"{name}: {trainer.callback_metrics[name].item():.4f}", flush=True)


if __name__ == "__main__":
    main()
