"""Tests that checking a hostile checkpoint takes bounded memory and time, and ends in a verdict.

In 0.1.0 a zip of 600 KB took 2.7 GB, a file of 132 KB took 4.4 GB, and one of 1.5 KB more than a minute.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rung_inside
import torch
from rung_inside.verify import examine as examining
from rung_inside.verify import isolation

from tests.support.hostile_checkpoints import (
    a_dict,
    a_pickle,
    a_storage,
    a_tensor,
    an_archive,
    an_old_file,
    named,
    number,
    text,
)

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

INSIDE = Path(rung_inside.__file__).parents[1]
MEMORY = 1 << 30


def compressed(path: Path) -> Path:
    """A pickle of 60 million empty sets, which is 60 KB when it is compressed and 13 GB in memory."""
    return an_archive(path, a_pickle(b"(" + b"\x8f" * 60_000_000 + b"t"), method=zipfile.ZIP_DEFLATED)


def many_sets(path: Path) -> Path:
    return an_archive(path, a_pickle(b"(" + b"\x8f" * 8_000_000 + b"t"))


def expanded(path: Path) -> Path:
    """A tensor of a billion numbers that are the same four, again and again; a flat copy of it has 4 GB."""
    tensor = a_tensor(a_storage("FloatStorage", "0", 4), 0, (1 << 28, 4), (0, 1))
    return an_archive(path, a_pickle(a_dict(step=number(1), w=tensor)), {"0": bytes(16)})


def sliding(path: Path) -> Path:
    """Windows of 20,000 numbers at every place: each number is in 20,000 of them."""
    tensor = a_tensor(a_storage("FloatStorage", "0", 40_000), 0, (20_000, 20_000), (1, 1))
    return an_archive(path, a_pickle(a_dict(step=number(1), w=tensor)), {"0": bytes(160_000)})


def overlapping(path: Path) -> Path:
    """Fifty thousand tensors on the same megabyte, each in a place of its own."""
    storage = a_storage("FloatStorage", "0", 262_144) + b"\x940"
    # The last number, which no tensor uses, is NaN, so that the storage as a whole is not finite.
    tensors = [a_tensor(b"h\x00", n % 1000, (262_143 - n % 1000 - n // 1000,), (1,)) for n in range(50_000)]
    content = a_pickle(storage + a_dict(step=number(1), w=b"(" + b"".join(tensors) + b"t"))
    return an_archive(path, content, {"0": bytes(4 * 262_143) + struct.pack("<f", float("nan"))})


def doubled_tuples(path: Path) -> Path:
    """A key whose hash takes 2 to the power of 60 steps."""
    return an_archive(path, a_pickle(b"}" + b")" + b"2\x86" * 60 + b"K\x01s"))


def colliding_keys(path: Path) -> Path:
    """A dict of 50,000 numbers that all have the same hash."""
    keys = b"".join(number(n * ((1 << 61) - 1)) + b"N" for n in range(1, 50_001))
    return an_archive(path, a_pickle(b"}(" + keys + b"u"))


def copied_states(path: Path) -> Path:
    """One state of 10,000 items that is given to 100,000 objects."""
    state = b"}(" + b"".join(number(n) + b"N" for n in range(10_000)) + b"u\x940"
    made = named("argparse", "Namespace") + b"\x940"
    return an_archive(path, a_pickle(state + made + b"(" + b"h\x01)\x81h\x00b" * 100_000 + b"t"))


def copied_texts(path: Path) -> Path:
    """A text of 60 KB that is turned into bytes 200,000 times."""
    kept = text("x" * 60_000) + b"\x940" + named("_codecs", "encode") + b"\x940"
    return an_archive(path, a_pickle(kept + b"(" + b"h\x01h\x00\x85R" * 200_000 + b"t"))


def deep(path: Path) -> Path:
    return an_archive(path, a_pickle(b")" + b"\x85" * 3_000_000))


def long_names(path: Path) -> Path:
    """Dicts in dicts, 20,000 deep, each under a key of 1,000 letters."""
    return an_archive(path, a_pickle(b"".join(b"}" + text("k" * 1000) for _ in range(20_000)) + b"}" + b"s" * 20_000))


def beyond_its_storage(path: Path) -> Path:
    tensor = a_tensor(a_storage("FloatStorage", "0", 1 << 40), 0, (1 << 40,), (1,))
    return an_old_file(path, a_pickle(a_dict(step=number(1), w=tensor)), {"0": b"\0\0\0\0"})


def more_than_the_archive_has(path: Path) -> Path:
    tensor = a_tensor(a_storage("FloatStorage", "0", 1 << 40), 0, (1 << 40,), (1,))
    return an_archive(path, a_pickle(a_dict(step=number(1), w=tensor)), {"0": b"\0\0\0\0"})


def a_long_number(path: Path) -> Path:
    return an_archive(path, a_pickle(b"L" + b"9" * 50_000 + b"L\n"))


def a_text_of_four_gigabytes(path: Path) -> Path:
    return an_archive(path, a_pickle(b"X\xff\xff\xff\xff"))


def one_file_many_times(path: Path) -> Path:
    """An archive whose index names the same megabyte 20,000 times."""
    an_archive(path, a_pickle(a_dict(step=number(1))), {"0": bytes(1 << 20)})
    raw = path.read_bytes()
    end = raw.rindex(b"PK\x05\x06")
    begin = struct.unpack("<L", raw[end + 16 : end + 20])[0]
    last = raw.rindex(b"PK\x01\x02")
    index = raw[begin:end] + raw[last:end] * 20_000
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 20_004, 20_004, len(index), begin, 0)
    path.write_bytes(raw[:begin] + index + tail)
    return path


def deep_header(path: Path) -> Path:
    path = path.with_suffix(".safetensors")
    header = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def huge_header(path: Path) -> Path:
    path = path.with_suffix(".safetensors")
    path.write_bytes(struct.pack("<Q", 99_999_999) + b"{}")
    return path


# Every file, and the verdicts that are right for it.
FILES: dict[Callable[[Path], Path], set[str]] = {
    compressed: {"corrupt"},
    many_sets: {"refused"},
    expanded: {"healthy"},
    sliding: {"healthy"},
    overlapping: {"refused"},
    doubled_tuples: {"no_step"},
    colliding_keys: {"no_step"},
    copied_states: {"refused"},
    copied_texts: {"no_step", "needs_allow_list"},
    deep: {"no_step"},
    long_names: {"no_step"},
    beyond_its_storage: {"truncated"},
    more_than_the_archive_has: {"corrupt"},
    a_long_number: {"corrupt"},
    a_text_of_four_gigabytes: {"truncated"},
    one_file_many_times: {"corrupt"},
    deep_header: {"corrupt"},
    huge_header: {"truncated"},
}


def run_check(*paths: Path, before: str = "") -> tuple[list[dict[str, Any]], int, float]:
    """Return the verdicts of the real command, and the most memory and the CPU seconds of its processes."""
    code = f"import sys, resource\n{before}\nfrom rung_inside.verify.examine import main\nmain(sys.argv[1:])\n"
    code += "ends = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
    code += "print(max(e.ru_maxrss for e in ends) * 1024, sum(e.ru_utime + e.ru_stime for e in ends))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, paths)],
        env={**os.environ, "PYTHONPATH": str(INSIDE)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    *lines, used = done.stdout.splitlines()
    memory, seconds = used.split()
    return [json.loads(line) for line in lines], int(memory), float(seconds)


def test_every_hostile_file_gets_a_verdict_within_bounded_memory_and_time(tmp_path: Path) -> None:
    torch.save({"step": 1}, tmp_path / "small.pt")
    _, usual_memory, usual_seconds = run_check(tmp_path / "small.pt")
    paths = {write: write(tmp_path / f"{write.__name__}.pt") for write in FILES}
    results, memory, seconds = run_check(*paths.values())
    found = {result["path"]: result for result in results}
    for write, verdicts in FILES.items():
        assert found[str(paths[write])]["verdict"] in verdicts, found[str(paths[write])]
    assert memory < usual_memory + MEMORY
    # The time to load torch shows how fast the machine is. 0.1.0 did not end.
    assert seconds < usual_seconds + 60 * max(usual_seconds, 1.0)


def test_a_file_larger_than_the_memory_is_checked_in_constant_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "step_3.safetensors", 600 << 20
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + size)
    before = "from rung_inside.verify import isolation\nisolation.MEMORY = 300 << 20"
    (result,), _, _ = run_check(path, before=before)
    assert (result["verdict"], result["step"]) == ("healthy", 3), result


def allocate(path: str, full: bool) -> Any:
    return bytearray(3 * isolation.MEMORY // 2)


def test_a_check_that_needs_too_much_memory_ends_as_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"step": 1}, tmp_path / "a.pt")
    monkeypatch.setattr(examining, "_read", allocate)
    result = isolation.examined_apart(str(tmp_path / "a.pt"), True, examining.examine)
    assert result["verdict"] == "refused" and "memory" in result["detail"]


@pytest.mark.parametrize(
    ("number", "verdict"),
    [(signal.SIGXCPU, "refused"), (signal.SIGSEGV, "unreadable"), (signal.SIGBUS, "unreadable"),
     (signal.SIGKILL, "unverified"), (signal.SIGABRT, "unreadable")],
)  # fmt: skip
def test_a_check_that_dies_is_a_verdict_on_its_file_alone(tmp_path: Path, number: int, verdict: str) -> None:
    """In 0.1.0 all files of the call were left without a verdict, the healthy ones, too."""

    def die(path: str, full: bool) -> Any:
        faulthandler.disable()
        os.kill(os.getpid(), number)

    result = isolation.examined_apart(str(tmp_path), True, die)
    assert (result["verdict"], result["path"], result["look"]) == (verdict, str(tmp_path), "full") and result["detail"]
    torch.save({"step": 1}, tmp_path / "a.pt")
    assert isolation.examined_apart(str(tmp_path / "a.pt"), False, examining.examine)["verdict"] == "healthy"


def test_a_check_that_does_not_end_is_ended_as_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def go_on(path: str, full: bool) -> Any:
        while True:
            pass

    monkeypatch.setattr(isolation, "CPU_SECONDS", 1)
    result = isolation.examined_apart(str(tmp_path), True, go_on)
    assert result["verdict"] == "refused" and "time" in result["detail"]


def test_a_check_cannot_write_a_file(tmp_path: Path) -> None:
    def write(path: str, full: bool) -> Any:
        try:
            (tmp_path / "written").write_bytes(b"x")
        except OSError as error:
            return {"detail": str(error)}
        return {"detail": "written"}

    assert "too large" in isolation.examined_apart(str(tmp_path), True, write)["detail"]


def test_a_pipe_in_a_folder_does_not_hold_up_the_check(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "model.pt")
    for name in ("x.pt", "y.pkl", "z.safetensors", ".metadata", "a.tar"):
        os.mkfifo(tmp_path / name)
        assert examining.examine(str(tmp_path))["verdict"] in ("unreadable", "unfinished", "corrupt")
        (tmp_path / name).unlink()
