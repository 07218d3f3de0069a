"""Tests that every file of a folder and of an archive is one that Rung has read, or one that nobody loads."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest
import torch
from rung_inside.verify.examine import examine
from safetensors.torch import save_file

from tests.support.hostile_checkpoints import (
    a_dict,
    a_pickle,
    a_storage,
    a_tensor,
    a_tuple,
    an_archive,
    called,
    named,
    number,
    text,
)


def a_folder(place: Path) -> Path:
    place.mkdir()
    save_file({"w": torch.ones(3)}, place / "model.safetensors")
    torch.save({"x": 1}, place / "random_states_0.pkl")
    assert examine(str(place))["verdict"] == "healthy"
    return place


CONTENT = a_pickle(a_dict(step=number(5)))
OTHERS = (b"", b"checkpoint-500\nlast\n", b"import os\nx\n", b"\x89PNG\r\n", b"\n\x05\x12", b"cat")
NAMES = ("random_states_0.pkl", "state.pickle", "state.th", "state", "data.tar", "deep/state.dat")
OLDEST = b"cposix\nmkdir\n(Vx\ntR."


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [OLDEST, a_pickle(called(named("posix", "mkdir"), text("x")))])
def test_a_plain_pickle_in_a_folder_is_refused_whatever_its_name_is(tmp_path: Path, name: str, content: bytes) -> None:
    folder = a_folder(tmp_path / "step_5")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    result = examine(str(folder))
    assert result["verdict"] == "refused" and name in result["detail"], result


def test_files_of_a_folder_that_are_no_pickles_do_not_matter(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "step_5")
    for number_, content in enumerate(
        (b"", b"checkpoint-500\nlast\n", b"import os\nx\n", b"\x89PNG\r\n", b"\n\x05\x12", b"cat")
    ):
        (folder / f"other{number_}").write_bytes(content)
    (folder / "README.md").write_bytes(OLDEST)
    (folder / "more.pkl").write_bytes(a_pickle(a_dict(x=number(1))))
    assert examine(str(folder))["verdict"] == "healthy"
    (folder / "more.pkl").write_bytes(a_pickle(a_dict(x=number(1))) + b"junk")
    assert examine(str(folder))["verdict"] == "truncated"


@pytest.mark.parametrize("target", ["elsewhere.pt", "elsewhere", "nowhere"])
def test_a_folder_with_a_link_in_it_is_not_judged(tmp_path: Path, target: str) -> None:
    folder = a_folder(tmp_path / "step_5")
    torch.save({"x": 1}, tmp_path / "elsewhere.pt")
    (tmp_path / "elsewhere").mkdir()
    (folder / "optimizer.bin").symlink_to(tmp_path / target)
    result = examine(str(folder))
    assert result["verdict"] == "unverified" and "optimizer.bin" in result["detail"]


@pytest.mark.parametrize("name", ["constants.pkl\0x", "code/a.py", "Version", "data\\0", ".data/version"])
def test_an_archive_holds_only_what_torch_writes(tmp_path: Path, name: str) -> None:
    path = tmp_path / "step_5.pt"
    writer = torch._C.PyTorchFileWriter(str(path))
    writer.write_record("data.pkl", CONTENT, len(CONTENT))
    writer.write_end_of_file()
    assert examine(str(path))["verdict"] == "healthy"
    writer = torch._C.PyTorchFileWriter(str(path))
    for each in ("data.pkl", name):
        writer.write_record(each, CONTENT, len(CONTENT))
    writer.write_end_of_file()
    assert examine(str(path))["verdict"] in ("corrupt", "refused")


@pytest.mark.filterwarnings("ignore")
def test_places_outside_of_a_sparse_tensor_are_found(tmp_path: Path) -> None:
    """torch checks them only when it is asked to."""
    path = tmp_path / "step_5.pt"
    rows, columns, values = torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2)
    for place, verdict in ((1, "healthy"), (2, "corrupt"), (-1, "corrupt")):
        where = torch.tensor([[0, place]])
        torch.save({"x": torch.sparse_coo_tensor(where, values, (2,), check_invariants=False)}, path)
        assert examine(str(path))["verdict"] == verdict
        columns[1] = place
        torch.save({"x": torch.sparse_csr_tensor(rows, columns, values, (2, 2), check_invariants=False)}, path)
        assert examine(str(path))["verdict"] == verdict


SIZES = {
    "no tuple": number(2), "too few sides": b")", "a tuple as a side": a_tuple(number(2) + b"\x85"),
    "a text as a side": a_tuple(text("2")), "a truth as a side": a_tuple(b"\x88"),
    "too many sides": a_tuple(*[number(2)] * 3),
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_a_sparse_tensor_of_an_odd_size_is_a_verdict(tmp_path: Path, size: str) -> None:
    where = a_tensor(a_storage("LongStorage", "0", 2), 0, (1, 2), (2, 1))
    values = a_tensor(a_storage("FloatStorage", "1", 2), 0, (2,), (1,))
    data = a_tuple(where, values, SIZES[size])
    tensor = called(named("torch._utils", "_rebuild_sparse_tensor"), named("torch", "sparse_coo"), data)
    content = a_pickle(a_dict(step=number(5), x=tensor))
    path = an_archive(tmp_path / "step_5.pt", content, {"0": struct.pack("<2q", 0, 1), "1": bytes(8)})
    result = examine(str(path))
    assert result["verdict"] in ("corrupt", "unverified") and "Error" not in result["detail"], result


@pytest.mark.filterwarnings("ignore")
def test_places_outside_of_a_nested_tensor_are_found(tmp_path: Path) -> None:
    sizes, strides, offsets = torch.tensor([[2], [3]]), torch.tensor([[1], [1]]), torch.tensor([0, 2])
    torch.save({"x": torch._nested_view_from_buffer(torch.ones(5), sizes, strides, offsets)}, tmp_path / "step_5.pt")
    assert examine(str(tmp_path / "step_5.pt"))["verdict"] == "healthy"
    with zipfile.ZipFile(tmp_path / "step_5.pt") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for place in (3, -1):
        with zipfile.ZipFile(tmp_path / "step_6.pt", "w") as archive:
            for name, content in files.items():
                old, new = (struct.pack("<2q", 0, each) for each in (2, place))
                archive.writestr(name, new if content == old else content)
        assert examine(str(tmp_path / "step_6.pt"))["verdict"] == "corrupt"
