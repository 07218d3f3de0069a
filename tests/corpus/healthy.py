# ruff: noqa: E501
"""Makes healthy logs of any length in the formats of many frameworks, with NaN and inf in harmless places."""

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PER_EPOCH = 500


@dataclass
class State:
    """The numbers of one step of a healthy FP16 training."""

    step: int
    loss: float
    norm: float
    lr: float
    scale: float

    @property
    def epoch(self) -> int:
        return self.step // PER_EPOCH

    @property
    def done(self) -> int:
        return self.step % PER_EPOCH + 1


def course(rng: random.Random) -> Iterator[State]:
    """Yield the steps of a training whose loss falls with some noise, and whose scale sometimes backs off."""
    level, scale = rng.uniform(2, 11), 65536.0
    step = 0
    while True:
        loss = max(0.01, (level * math.exp(-step / 20000) + 0.05) * rng.gauss(1, 0.03))
        lr = 3e-4 * min(1.0, (step + 1) / 200)
        if rng.random() < 1 / 1500:
            scale = max(2048.0, scale / 2)
        elif step % 2000 == 1999:
            scale = min(65536.0, scale * 2)
        yield State(step, loss, abs(rng.gauss(1, 0.15)) + 0.05, lr, scale)
        step += 1


def _plain(s: State, rng: random.Random) -> str:
    return f"step {s.step} | loss {s.loss:.4f} | lr {s.lr:.2e} | grad norm {s.norm:.3f}"


def _parts(s: State, rng: random.Random) -> str:
    return f"[{s.step:06d}] total_loss={s.loss:.4f}, kd={0.3 * s.loss:.4f}, ce={0.7 * s.loss:.4f}, scale={s.scale:.0f}"


def _nanogpt(s: State, rng: random.Random) -> str:
    if s.step % 250 == 0:
        return f"step {s.step}: train loss {s.loss:.4f}, val loss {s.loss + 0.1:.4f}"
    return f"iter {s.step}: loss {s.loss:.4f}, time {rng.uniform(200, 220):.2f}ms, mfu {rng.uniform(30, 31):.2f}%"


def _speedrun(s: State, rng: random.Random) -> str:
    average = "nan" if s.step < 11 else f"{rng.uniform(90, 100):.2f}"
    return f"step:{s.step}/9000 train_loss:{s.loss:.4f} train_time:{s.step * 95}ms step_avg:{average}ms"


def _trainer(s: State, rng: random.Random) -> str:
    norm = "inf" if rng.random() < 1 / 2000 else f"{s.norm:.4f}"
    return (
        f"{{'loss': {s.loss:.4f}, 'grad_norm': {norm}, 'learning_rate': {s.lr:.6g}, 'epoch': {s.step / PER_EPOCH:.2f}}}"
    )


def _trainer5(s: State, rng: random.Random) -> str:
    bar = f"{s.step // 90:3d}%|█         | {s.step + 1}/9000 [00:10<01:30, {rng.uniform(3, 4):.2f}it/s]"
    numbers = f"{{'loss': '{s.loss:.4g}', 'grad_norm': '{s.norm:.4g}', 'learning_rate': '{s.lr:.4g}', 'epoch': '{s.step / PER_EPOCH:.4g}'}}"
    return f"\r{bar}\r{' ' * 60}\r{numbers}"


def _tqdm(s: State, rng: random.Random) -> str:
    bar = f"| {s.done}/{PER_EPOCH} [00:10<00:10, {rng.uniform(20, 30):.2f}it/s, loss={s.loss:.3f}, lr={s.lr:.1e}]"
    return f"Epoch {s.epoch + 1}: {100 * s.done // PER_EPOCH:3d}%|{'█' * (10 * s.done // PER_EPOCH):<10}{bar}"


def _lightning(s: State, rng: random.Random) -> str:
    bar = f"| {s.done}/{PER_EPOCH} [00:10<00:10, {rng.uniform(20, 30):.2f}it/s, v_num=3, train_loss={s.loss:.3f}]"
    return f"\rEpoch {s.epoch}: {100 * s.done // PER_EPOCH:3d}%|{'█' * (10 * s.done // PER_EPOCH):<10}{bar}"


def _deepspeed(s: State, rng: random.Random) -> str:
    if rng.random() < 1 / 1000:
        return f"[2026-03-01 10:00:00,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {s.scale * 2:.0f}, reducing to {s.scale:.0f}"
    if s.step % 2:
        return f"epoch: {s.epoch}|step: {s.done}|loss: {s.loss}"
    return f"[2026-03-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step={s.step}, skipped=3, lr=[{s.lr}, {s.lr}], mom=[(0.9, 0.95), (0.9, 0.95)]"


def _apex(s: State, rng: random.Random) -> str:
    if rng.random() < 1 / 1000:
        return f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {s.scale}"
    return f"0: TRAIN [{s.epoch}][{s.done}/{PER_EPOCH}]\tTime 0.147 (0.172)\tTok/s {rng.randint(90000, 110000)} (91248)\tLoss/tok {s.loss:.4f} ({s.loss:.4f})\tLR {s.lr:.3e}"


def _fairseq(s: State, rng: random.Random) -> str:
    head = f"2026-03-01 10:00:00 | INFO | train_inner | epoch {s.epoch + 1:03d}: {s.done:6d} / {PER_EPOCH}"
    return f"{head} loss={s.loss:.3f}, nll_loss={s.loss - 0.01:.3f}, ppl={2**s.loss:.2f}, wps={rng.randint(30000, 36000)}, ups=12.52, num_updates={s.step}, lr={s.lr:.6g}, gnorm={s.norm:.3f}, clip=0, loss_scale={s.scale:.0f}"


def _fairseq_json(s: State, rng: random.Random) -> str:
    return json.dumps(
        {
            "epoch": s.epoch + 1,
            "update": s.step / PER_EPOCH,
            "loss": f"{s.loss:.3f}",
            "num_updates": str(s.step),
            "lr": f"{s.lr:.6g}",
            "gnorm": f"{s.norm:.3f}",
            "loss_scale": f"{s.scale:.0f}",
        }
    )


def _megatron(s: State, rng: random.Random) -> str:
    return f" iteration {s.step:8d}/  500000 | consumed samples: {s.step * 128:12d} | elapsed time per iteration (ms): {rng.uniform(200, 220):.1f} | learning rate: {s.lr:.6E} | global batch size:   128 | lm loss: {s.loss:.6E} | loss scale: {s.scale:.1f} | grad norm: {s.norm:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"


def _detectron2(s: State, rng: random.Random) -> str:
    return f"[03/01 10:00:00 d2.utils.events]:  eta: 0:12:30  iter: {s.step}  total_loss: {s.loss:.4g}  loss_cls: {0.6 * s.loss:.4g}  loss_box_reg: {0.4 * s.loss:.4g}  time: 0.2125  last_time: 0.2  data_time: 0.01  lr: {s.lr:.5g}  max_mem: 2000M"


def _mmengine(s: State, rng: random.Random) -> str:
    return f"2026/03/01 10:00:00 - mmengine - INFO - Epoch(train) [{s.epoch + 1}][{s.done:3d}/{PER_EPOCH}]  lr: {s.lr:.4e}  eta: 1:02:03  time: 0.3125  data_time: 0.01  memory: 2000  grad_norm: {s.norm:.4f}  loss: {s.loss:.4f}  loss_cls: {0.6 * s.loss:.4f}  loss_bbox: {0.4 * s.loss:.4f}"


def _ultralytics(s: State, rng: random.Random) -> str:
    head = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n" if s.done == 1 else ""
    return f"{head}{s.epoch + 1:>9}/100      6.54G {s.loss:>10.4g} {s.loss / 2:>10.4g} {s.loss / 3:>10.4g} {rng.randint(8, 60):>10}        640: {100 * s.done // PER_EPOCH:3d}%|█         | {s.done}/{PER_EPOCH} [00:10<00:10, {rng.uniform(4, 6):.2f}it/s]"


def _keras(s: State, rng: random.Random) -> str:
    head = f"Epoch {s.epoch + 1}/100\n" if s.done == 1 else ""
    return f"{head}{s.done}/{PER_EPOCH} ━━━━━━━━━━━━━━━━━━━━ 12s {rng.randint(4, 8)}ms/step - accuracy: 0.{rng.randint(10, 99)} - loss: {s.loss:.4f}"


def _torchvision(s: State, rng: random.Random) -> str:
    return f"Epoch: [{s.epoch}]  [{s.done:3d}/{PER_EPOCH}]  eta: 0:12:30  lr: {s.lr:.6f}  loss: {s.loss:.4f} ({s.loss:.4f})  time: 0.6  data: 0.01  max mem: 2000"


def _json_lines(s: State, rng: random.Random) -> str:
    return json.dumps(
        {
            "step": s.step,
            "train/loss": s.loss,
            "lr": s.lr,
            "grad_norm": s.norm,
            "val/loss": None,
            "loss_scale": s.scale,
            "tokens_per_second": rng.randint(9000, 11000),
        }
    )


def _csv(s: State, rng: random.Random) -> str:
    head = "epoch,step,train_loss,val_loss,lr,loss_scale\n" if s.step == 0 else ""
    return f"{head}{s.epoch},{s.step},{s.loss},,{s.lr},{s.scale}"


def _logfmt(s: State, rng: random.Random) -> str:
    return f'ts=2026-03-01T10:00:00Z level=info msg="train step" step={s.step} loss={s.loss:.5g} lr={s.lr:g} samples_per_sec={rng.uniform(50, 60):.1f}'


def _loguru(s: State, rng: random.Random) -> str:
    return f"2026-03-01 10:00:00.123 | INFO     | __main__:train_step:88 - epoch={s.epoch} step={s.step} loss={s.loss:.6f} it/s={rng.uniform(4, 5):.1f}"


def _ranks(s: State, rng: random.Random) -> str:
    return "\n".join(
        f"[rank{rank}]: step={s.step} loss={s.loss * rng.gauss(1, 0.01):.4f} scale={s.scale:.0f}" for rank in range(4)
    )


def _records(s: State, rng: random.Random) -> str:
    return f"rung| step step={s.step} loss={s.loss!r} lr={s.lr!r} grad_norm={s.norm!r} scale={s.scale!r} skipped=0"


FORMATS: dict[str, Callable[[State, random.Random], str]] = {
    "plain": _plain, "parts": _parts, "nanogpt": _nanogpt, "speedrun": _speedrun, "transformers": _trainer,
    "transformers5": _trainer5, "tqdm": _tqdm, "lightning": _lightning, "deepspeed": _deepspeed, "apex": _apex,
    "fairseq": _fairseq, "fairseq_json": _fairseq_json, "megatron": _megatron, "detectron2": _detectron2,
    "mmengine": _mmengine, "ultralytics": _ultralytics, "keras": _keras, "torchvision": _torchvision,
    "json_lines": _json_lines, "csv": _csv, "logfmt": _logfmt, "loguru": _loguru, "torchrun": _ranks,
    "records": _records,
}  # fmt: skip

# Other lines of healthy runs, with words that a careless rule takes for a fault.
NOISE = (
    "best_loss=inf, patience=5, min_delta=0.0",
    "logging_nan_inf_filter=True,",
    "nan_to_num=False, clip_grad_norm=1.0, allow_inf=False",
    "Namespace(lr=0.001, detect_anomaly=False, nan_policy='raise', loss_scale=0, max_grad_norm=inf)",
    "  File \"/home/user/train.py\", line 88: if torch.isnan(loss): raise ValueError('loss is nan')",
    "Saving checkpoint to /ckpt/step_500.pt",
    "WARNING: the optimizer's overflow buffer is enabled; NaN checks are off",
    "val_acc improved from -inf to 0.5312, saving model to best.h5",
    "Real Data - Skewness: nan, Kurtosis: nan",
    "| Forklift  | nan    | Truck       | 0.31   |",
    "{'bbox': {'AP': 29.7, 'APs': nan, 'APm': 31.2}}",
    "   user  rating  timestamp  genre\n0    12     4.0        NaN    NaN\n1    17     NaN        NaN  drama",
    "RuntimeWarning: invalid value encountered in divide",
    "/usr/lib/python3/torch/optim/lr_scheduler.py:123: UserWarning: Detected call of `lr_scheduler.step()`",
    "gpu memory: 11.2 GiB of 16.0 GiB, oom retries: 0",
    "wandb: Waiting for W&B process to finish... (success).",
    "wandb: Network error (ConnectionError), entering retry loop.",
    "hinge_loss_nan  [False]",
    "mask has nan:  False",
    "Infinity ward dataset: 1200 samples, nano split: 120",
    "To avoid CUDA out of memory errors, reduce the batch size.",
    "[W socket.cpp:601] [c10d] The client socket cannot be initialized to connect to [host]:29500",
    "NCCL version 2.21.5+cuda12.4",
    "NCCL INFO Channel 00/02 :    0   1",
    "Finetuning: info level, final banana",
    "eval: perplexity inf over 0 documents",
    "epoch summary: lr range [0.0, inf)",
    "  warnings.warn('loss contains nan values')",
    "# a loss of nan means that the learning rate is too high",
    "Loaded 3 of 3 shards, missing keys: [], unexpected keys: []",
    "killed idle worker pool after 300 s without work",
    "total params: 124M, trainable: 124M, non-finite: 0",
)  # fmt: skip


def healthy_log(name: str, lines: int, seed: int = 0) -> Iterator[bytes]:
    """Yield the lines of a healthy log of this format."""
    rng = random.Random(f"{seed} {name}")
    show, printed = FORMATS[name], 0
    for state in course(rng):
        texts = show(state, rng).split("\n")
        if rng.random() < 0.05:
            texts += rng.choice(NOISE).split("\n")
        for text in texts:
            yield text.encode() + b"\n"
        printed += len(texts)
        if printed >= lines:
            return
