"""A small training for the chaos harness, standard library only: prints losses, saves checkpoints, fails as planned.

Everything it does goes into a ledger of its own first, one line each, written at once and synced. So the ledger says
what happened even if this process is killed at any moment. Rung never sees the ledger.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any

NUMBERS = 64
# What the log shows for each fault, and the exit code.
MESSAGES = {
    "overflow": "RuntimeError: value cannot be converted to type at::Half without overflow",
    "unscale": "ValueError: Attempting to unscale FP16 gradients.",
    "oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.25 GiB free.",
    "crash": "ValueError: the label file has an odd number of rows",
}


class Ledger:
    """What one process did, in the order in which it did it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._attempt = int(os.environ["RUNG_ATTEMPT"])

    def write(self, kind: str, **facts: Any) -> None:
        about = {"t": time.monotonic_ns(), "pid": os.getpid(), "attempt": self._attempt, "kind": kind}
        about["where"] = os.uname().nodename
        os.write(self._file, json.dumps({**about, **facts}).encode() + b"\n")
        os.fsync(self._file)


def weights_at(step: int, *, healthy: bool = True) -> bytes:
    chance = random.Random(step)
    values = [chance.uniform(-1, 1) if healthy else math.nan for _ in range(NUMBERS)]
    return struct.pack(f"<{NUMBERS}f", *values)


def checkpoint_bytes(step: int, numbers: bytes) -> bytes:
    """Return a .safetensors file."""
    tensor = {"dtype": "F32", "shape": [NUMBERS], "data_offsets": [0, len(numbers)]}
    header = json.dumps({"__metadata__": {"step": str(step)}, "weight": tensor}).encode()
    return struct.pack("<Q", len(header)) + header + numbers


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the step and the sum of the numbers in a checkpoint, or why it cannot be read."""
    try:
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        first, last = header["weight"]["data_offsets"]
        numbers = raw[8 + length :][first:last]
        struct.unpack(f"<{NUMBERS}f", numbers)
        return {"file": path.name, "step": int(header["__metadata__"]["step"]), "sum": sum_of(numbers)}
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        return {"file": path.name, "broken": f"{type(error).__name__}: {error}"}


def gpus() -> str:
    """Return the GPUs that this process was given; a container without any has the word `void`."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    # All nodes of a cluster can be this machine, and each numbers its own.
    node = os.environ.get("SLURMD_NODENAME", "")
    return "" if given in ("", "void") else f"{node}:{given}" if node else given


def sum_of(numbers: bytes) -> str:
    return hashlib.sha256(numbers).hexdigest()[:16]


class Training:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.ledger = options, Ledger(options.ledger)
        self.plan = json.loads(Path(options.plan).read_text())
        self.spoilt = False
        # What attempts before this one have failed of.
        self.before = [fault["fault"] for fault in self._records() if fault["kind"] == "fault"]

    def _records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.options.ledger).read_text().splitlines()]

    def run(self) -> None:
        resumed = read_checkpoint(Path(self.options.resume)) if self.options.resume else None
        # `owner` is the process that keeps this one: the wrapper.
        about = {"job": os.environ["RUNG_JOB"], "owner": os.getppid(), "resumed": resumed}
        secret = sum_of(os.environ.get("CHAOS_TOKEN", "").encode())
        self.ledger.write("start", **about, gpus=gpus(), secret=secret)
        if resumed and "broken" in resumed:
            self.say(f"cannot load {resumed['file']}: {resumed['broken']}")
            self.end(4)
        self.train(resumed["step"] if resumed else 0)

    def train(self, done: int) -> None:
        self.say(f"rung| resumed step={done}" if done else "training from the first step on")
        for step in range(done + 1, self.plan["steps"] + 1):
            time.sleep(self.plan["pace"])
            for fault in self.plan["faults"]:
                if fault["step"] == step and self.happens(fault):
                    self.fail(fault)
            loss = math.nan if self.spoilt else 0.1 + 2 * math.exp(-step / 25) + 0.01 * random.Random(step).random()
            self.say(f"step {step}/{self.plan['steps']} loss {loss:.5f}")
            if step in self.plan["noise"]:
                self.noise(step)
            if step % self.plan["every"] == 0 or step == self.plan["steps"]:
                self.save(step)
        self.end(0)

    def happens(self, fault: dict[str, Any]) -> bool:
        """Tell whether the knobs, or the number of tries, let a fault happen again."""
        kind, options = fault["kind"], self.options
        if kind == "crash":
            return not (fault["once"] and kind in self.before)
        if kind == "nan":
            return bool(options.clip in ("", "off"))
        if kind == "oom":
            return bool(int(options.batch) >= self.plan["batch"])
        return bool(options.precision not in (["fp32"] if fault["only_fp32"] else ["native_fp16", "fp32", "bf16"]))

    def fail(self, fault: dict[str, Any]) -> None:
        kind, step = fault["kind"], fault["step"]
        self.ledger.write("fault", fault=kind, step=step)
        if kind == "nan":
            self.spoilt = True
            if fault["goes_on"]:
                return
            self.say(f"step {step}/{self.plan['steps']} loss nan")
        else:
            self.say("Traceback (most recent call last):")
            self.say(f'  File "train.py", line {step}, in <module>')
            self.say(MESSAGES[kind])
        self.end(fault["code"])

    def noise(self, step: int) -> None:
        """Print bytes that are no text, and no line end."""
        chance = random.Random(f"noise {step}")
        self.say_bytes(b"noise %d " % step + bytes(chance.choice(range(128, 256)) for _ in range(40)) + b"\x00\x1b\n")

    def say(self, text: str) -> None:
        self.say_bytes(text.encode() + b"\n")

    def say_bytes(self, line: bytes) -> None:
        self.ledger.write("line", text=line.decode("latin-1"))
        written = 0
        try:
            while written < len(line):
                written += os.write(1, line[written:])
        except OSError as error:
            self.ledger.write("unwritten", bytes=written, why=str(error))
            self.end(1)

    def save(self, step: int) -> None:
        numbers = weights_at(step, healthy=not self.spoilt)
        path = Path(self.options.dir) / f"step_{step}.safetensors"
        draft = path.with_name(f".draft-{os.getpid()}")
        try:
            draft.write_bytes(checkpoint_bytes(step, numbers))
            # First the ledger: every file with this name is in it.
            self.ledger.write("saving", file=path.name, step=step, sum=sum_of(numbers), healthy=not self.spoilt)
            draft.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            self.ledger.write("fault", fault="disk", step=step)
            self.say(f"OSError: {error}")
            self.end(1)

    def end(self, code: int) -> None:
        self.ledger.write("end", code=code)
        sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("plan", "ledger", "dir", "resume", "clip", "precision", "batch", "accumulation"):
        parser.add_argument(f"--{name}", default="")
    Training(parser.parse_args()).run()


if __name__ == "__main__":
    main()
