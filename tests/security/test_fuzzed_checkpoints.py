"""Tests that every input to the verifier ends in a verdict: real files that are damaged at random, and random opcodes.

No exception reaches the catch-all of `examine`, which only keeps the next file from being lost, and the memory of the
process stays bounded.
"""

from __future__ import annotations

import random
import re
import resource
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import strategies as st
from rung_inside.verify.examine import examine
from rung_inside.verify.pickles.machine import ACTIONS, Machine
from rung_inside.verify.stored.mapped_file import Window
from rung_inside.verify.stored.verdict import Unfit
from safetensors.torch import save_file

from tests.support.random_inputs import COUNTS, run

VERDICTS = {
    "healthy", "no_step", "needs_allow_list", "poisoned", "corrupt", "truncated", "unfinished", "refused", "unreadable",
    "unverified",
}  # fmt: skip
UNEXPECTED = re.compile(r"(?:.*: )?[A-Z]\w*(?:Error|Exception|Warning|Exit): ")
MEMORY = 500 << 20
EDGES = [bytes([value]) * count for value in (0, 0xFF, 0x7F, 0x80) for count in (1, 2, 4, 8)]
CODES = bytes([*ACTIONS, ord(".")])


def real_files(folder: Path) -> list[tuple[str, bytes]]:
    """Return names and contents of checkpoint files as frameworks write them."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    plain = {"step": 5, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "s": torch.eye(3).to_sparse()}
    rich = {"global_step": 5, "whole": model, "o": optimizer, "set": {1, 2}, "c": torch.ones(2).expand(3, 2), "b": b"x"}
    for name, state, options in (
        ("plain.pt", plain, {}), ("rich.pt", rich, {}), ("four.pt", rich, {"pickle_protocol": 4}),
        ("old.pt", plain, {"_use_new_zipfile_serialization": False}),
        ("old_rich.pt", rich, {"_use_new_zipfile_serialization": False}),
    ):  # fmt: skip
        torch.save(state, folder / name, **options)
    save_file({"a": torch.randn(4, 3), "b": torch.ones(5).half()}, folder / "step_3.safetensors")
    return [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]


def damaged(raw: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Return a file with some bytes flipped, cut, repeated, replaced by edges, opcodes or parts of other files."""
    out = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(out) + 1)
        size = chance.choice((1, 1, 2, 4, 8, 30, 200))
        kind = chance.randrange(8)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del out[at : at + size]
        elif kind == 2:
            out[at : at + size] = out[at : at + size] * chance.choice((2, 3, 50))
        elif kind == 3:
            out[at : at + size] = bytes(chance.choice(CODES) for _ in range(size))
        elif kind == 4:
            edge = chance.choice(EDGES)
            out[at : at + len(edge)] = edge
        elif kind == 5:
            other = chance.choice(others)
            start = chance.randrange(len(other))
            out[at : at + size] = other[start : start + size]
        elif kind == 6:
            del out[max(at, 1) :]
        else:
            out[at:at] = bytes(chance.randrange(256) for _ in range(size))
    return bytes(out)


def in_archive(raw: bytes, change: Callable[[bytes], bytes], path: Path) -> None:
    """Change only the pickle of an archive, so that its checksum still matches and the pickle is read."""
    path.with_suffix(".src").write_bytes(raw)
    with zipfile.ZipFile(path.with_suffix(".src")) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, change(content) if name.endswith("data.pkl") else content)


def check(path: Path, full: bool) -> str:
    result = examine(str(path), full)
    assert result["verdict"] in VERDICTS
    assert not UNEXPECTED.match(result["detail"]), result
    return str(result["verdict"])


def fuzz(folder: Path, count: int, seed: int) -> set[str]:
    chance = random.Random(seed)
    files = real_files(folder)
    contents = [raw for _, raw in files]
    found = set()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for number in range(count):
        name, raw = chance.choice(files)
        path = folder / f"fuzzed_{name}"
        if raw.startswith(b"PK") and number % 2:
            in_archive(raw, lambda content: damaged(content, contents, chance), path)
        else:
            path.write_bytes(damaged(raw, contents, chance))
        found.add(check(path, full=number % 3 > 0))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < before + MEMORY
    return found


def test_two_thousand_damaged_files_end_in_verdicts(tmp_path: Path) -> None:
    found = fuzz(tmp_path, 2_000, seed=14)
    assert {"healthy", "corrupt", "truncated", "refused", "poisoned"} <= found


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_thousand_damaged_files_end_in_verdicts(tmp_path: Path, seed: int) -> None:
    fuzz(tmp_path, 10_000, seed)


def sharded(folder: Path) -> dict[str, bytes]:
    state = {"model": {"w": torch.randn(3), "b": torch.ones(2)}, "step": 7, "extra": {"x": [1, 2]}}
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.long)])
def test_damaged_sharded_folders_end_in_verdicts(tmp_path: Path, count: int) -> None:
    files = sharded(tmp_path / "d")
    chance = random.Random(count)
    for _ in range(count):
        for name, raw in files.items():
            changed = damaged(raw, list(files.values()), chance) if chance.random() < 0.6 else raw
            (tmp_path / "d" / name).write_bytes(changed)
        check(tmp_path / "d", full=chance.random() < 0.5)
    shutil.rmtree(tmp_path / "d")


def run_machine(raw: bytes) -> Any:
    machine = Machine(Window(raw, 0, len(raw)), steps=200_000)
    try:
        return machine.run()
    except Unfit as unfit:
        return unfit.verdict


OPCODE = st.sampled_from([bytes([code]) for code in CODES])
LINE = st.binary(max_size=8).map(lambda raw: raw.replace(b"\n", b"") + b"\n")
SIZED = st.binary(max_size=12).map(lambda raw: struct.pack("<B", len(raw)) + raw)
PIECE = st.one_of(
    OPCODE, LINE, SIZED, st.binary(max_size=9),
    st.sampled_from([b"ctorch._utils\n_rebuild_tensor_v2\n", b"cbuiltins\nset\n", b"ccollections\nOrderedDict\n"]),
)  # fmt: skip


@COUNTS
def test_random_opcodes_end_in_a_value_or_a_verdict(count: int) -> None:
    def check(pieces: list[bytes]) -> None:
        run_machine(b"".join(pieces))
        run_machine(b"".join(pieces) + b".")

    run(count, check, st.lists(PIECE, max_size=60))
