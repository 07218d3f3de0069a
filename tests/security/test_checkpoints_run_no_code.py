"""Tests that no checkpoint is resumed from that runs code when it is loaded.

0.1.0 judged whole modules of torch, numpy and the frameworks harmless, and everything in the script. So it resumed from
files that call `torch.storage._load_from_bytes`, or `os.system` as an attribute of a module of torch.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from rung_inside.verify.examine import examine
from safetensors.torch import save_file

from tests.support.hostile_checkpoints import (
    a_dict,
    a_pickle,
    an_archive,
    an_old_file,
    called,
    named,
    number,
    text,
)

EMPTY = b")"
MKDIR = ("posix", "mkdir")


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def bytes_of(raw: bytes) -> bytes:
    return b"B" + len(raw).to_bytes(4, "little") + raw


def nested(trace: Path) -> bytes:
    inner = io.BytesIO()
    torch.save(Bomb(trace), inner)
    return called(named("torch.storage", "_load_from_bytes"), bytes_of(inner.getvalue()))


def arguments(trace: Path) -> bytes:
    return b"(" + text(str(trace)) + b"t"


# What each pickle does when it is loaded: it makes the folder `trace`. By what must be named in the verdict.
RUN_IN_TORCH: dict[str, Callable[[Path], bytes]] = {
    "torch.storage._load_from_bytes": nested,
    "torch.serialization.os.mkdir": lambda trace: called(named("torch.serialization", "os.mkdir"), text(str(trace))),
    "torch.nn.modules.module.functools.sys.modules": lambda trace: called(
        called(
            named("builtins", "getattr"),
            called(named("torch.nn.modules.module", "functools.sys.modules.get"), text("os")),
            text("mkdir"),
        ),
        text(str(trace)),
    ),
    "posix.mkdir": lambda trace: called(
        named("torch._tensor", "_rebuild_from_type_v2"), named(*MKDIR), named("torch", "Tensor"), arguments(trace), b"N"
    ),
    "builtins.print": lambda trace: called(
        called(named("functools", "partial"), named("builtins", "print")), text(str(trace))
    ),
    "builtins.eval": lambda trace: called(named("builtins", "eval"), text(f"__import__('os').mkdir({str(trace)!r})")),
    "torch.hub.load": lambda trace: called(named("torch.hub", "load"), text(str(trace)), text("x")),
    "numpy.testing._private.utils.runstring": lambda trace: called(
        named("numpy.testing._private.utils", "runstring"), text(f"import os; os.mkdir({str(trace)!r})"), b"}"
    ),
    "transformers.utils.import_utils": lambda trace: called(
        named("transformers.utils.import_utils", "os.mkdir"), text(str(trace))
    ),
    "lightning.pytorch.cli.os.mkdir": lambda trace: called(
        named("lightning.pytorch.cli", "os.mkdir"), text(str(trace))
    ),
}
REALLY_RUN = ("torch.storage._load_from_bytes", "torch.serialization.os.mkdir", "posix.mkdir", "builtins.eval")


@pytest.mark.parametrize("write", [an_archive, an_old_file])
@pytest.mark.parametrize("what", RUN_IN_TORCH)
def test_a_call_through_a_library_is_refused_and_named(tmp_path: Path, what: str, write: Any) -> None:
    trace = tmp_path / "went off"
    path = write(tmp_path / "step_5.pt", a_pickle(a_dict(step=number(5), x=RUN_IN_TORCH[what](trace))))
    for full in (True, False):
        result = examine(str(path), full)
        assert result["verdict"] == "refused" and what in result["detail"]
    assert not trace.exists()


@pytest.mark.parametrize("what", REALLY_RUN)
def test_the_attempts_are_real_and_would_run_if_they_were_loaded(tmp_path: Path, what: str) -> None:
    trace = tmp_path / "went off"
    path = an_archive(tmp_path / "step_5.pt", a_pickle(a_dict(step=number(5), x=RUN_IN_TORCH[what](trace))))
    with contextlib.suppress(AttributeError, TypeError):  # what comes back from mkdir is no tensor
        torch.load(path, weights_only=False)
    assert trace.is_dir()


SCRIPT = """
import enum
import os
from subprocess import Popen
from tempfile import _TemporaryFileCloser

def run(command):
    os.system(command)

class Config:
    class Inner:
        pass

class Mode(enum.Enum):
    TRAIN = 1

class Version(Config):
    def __reduce__(self):
        return Version, (1,)
"""

# Opcodes that reach into the script, or around the names.
AROUND: dict[str, bytes] = {
    "a function of the script": called(named("__main__", "run"), text("id")),
    "a module that the script imports": called(named("__main__", "os.system"), text("id")),
    "a class that the script imports": named("__main__", "_TemporaryFileCloser") + EMPTY + b"\x81}b",
    "a function of a module beside the script": called(named("beside", "run"), text("id")),
    "a function through numpy": called(
        named("numpy.random._pickle", "__randomstate_ctor"), text("id"), named("__main__", "run")
    ),
    "a function through torch": called(
        named("torch._tensor", "_rebuild_from_type_v2"), named("__main__", "run"), named("torch", "Tensor"),
        b"(" + text("id") + b"t", b"N",
    ),
    "a function as the base of a class": called(
        named("copyreg", "_reconstructor"), named("__main__", "Config"), named("__main__", "run"), text("id")
    ),
    "an attribute of an attribute": called(
        called(named("builtins", "getattr"), named("__main__", "Config"), text("__init__")), text("id")
    ),
    "a function that is kept for later": called(named("functools", "partial"), named("__main__", "run"), text("id")),
    "a kept call that gets another function": called(named("functools", "partial"), named("torch.optim.adam", "Adam"))
    + b"(" + named("__main__", "run") + b"(" + text("id") + b"t}Ntb",
    "the result of a call": called(called(named("builtins", "getattr"), named("__main__", "Config"), text("go"))),
    "a computed name": text("po") + b"\x940" + text("posix") + text("system") + b"\x93" + b"(" + text("id") + b"tR",
    "a name from the memo": text("os") + b"\x94" + text("system") + b"\x930" + b"h\x00" + text("system") + b"\x93",
    "protocol 0": b"(S'id'\nios\nsystem\n",
    "protocol 1": b"(cos\nsystem\nS'id'\no",
    "the names of Python 2": b"\x80\x02c__builtin__\neval\n(S'1'\ntR",
    "a code of the extension registry": b"\x82\x01",
    "a class that gets new methods": named("argparse", "Namespace") + b"N" + a_dict(x=number(1)) + b"\x86b",
    "a class in a persistent id": b"(" + text("module") + named("__main__", "run") + text("f") + text("s") + b"tQ"
    + b"(" + text("id") + b"tR",
    "a call of a class that is not pickled so": called(named("__main__", "Config"), number(1)),
    "a function that is only named": named("__main__", "run"),
    "a class that is only named": named("__main__", "Config"),
    "a method of an enum": called(named("builtins", "getattr"), named("__main__", "Mode"), text("mro")),
    "more than a thousand names": b"".join(named("beside", f"C{n}") + b"0" for n in range(1100)) + b"N",
}  # fmt: skip


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a job with its script, in which the check runs."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text(SCRIPT)
    (tmp_path / "job" / "beside.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path / "job")
    monkeypatch.setenv("RUNG_RUN", "python train.py --lr 0.1")
    return tmp_path / "job"


@pytest.mark.parametrize("write", [an_archive, an_old_file])
@pytest.mark.parametrize("what", AROUND)
def test_no_trick_with_opcodes_reaches_a_function(script: Path, tmp_path: Path, what: str, write: Any) -> None:
    path = write(tmp_path / "step_5.pt", a_pickle(a_dict(step=number(5), x=AROUND[what])))
    result = examine(str(path))
    assert result["verdict"] == "refused", result


MADE = {
    "an optimizer that is kept for later": called(named("functools", "partial"), named("torch.optim.adam", "Adam"))
    + b"(" + named("torch.optim.adam", "Adam") + b")" + a_dict(lr=number(1)) + b"Ntb",
    "an object of the script": named("__main__", "Config") + EMPTY + b"\x81" + a_dict(lr=number(1)) + b"b",
    "a call of a class of the script that pickles itself so": called(named("__main__", "Version"), number(1)),
    "a call of an enum": called(named("__main__", "Mode"), number(1)),
    "a dict that makes objects of the script": called(named("collections", "defaultdict"), named("beside", "Config")),
    "a class inside a class": named("__main__", "Config.Inner") + EMPTY + b"\x81",
    "an object of a module beside it": named("beside", "Config") + EMPTY + b"\x81",
    "a member of an enum": called(named("builtins", "getattr"), named("__main__", "Mode"), text("TRAIN")),
}  # fmt: skip


@pytest.mark.parametrize("what", MADE)
def test_classes_of_the_script_are_still_taken(script: Path, tmp_path: Path, what: str) -> None:
    path = an_archive(tmp_path / "step_5.pt", a_pickle(a_dict(step=number(5), x=MADE[what])))
    result = examine(str(path))
    assert (result["verdict"], result["step"]) == ("needs_allow_list", 5), result


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_code_in_any_file_of_a_folder_is_refused(tmp_path: Path) -> None:
    """0.1.0 read neither the names in `.metadata` nor the files of random states."""
    trace = tmp_path / "went off"
    state = {"model": {"w": torch.ones(3)}, "step": 7}
    sharded = tmp_path / "sharded"
    dcp.save(state, checkpoint_id=sharded, no_dist=True)
    assert examine(str(sharded))["verdict"] == "healthy"
    (sharded / ".metadata").write_bytes(pickle.dumps(Bomb(trace)))
    assert examine(str(sharded))["verdict"] == "refused"
    for name in ("rng_state.pth", "random_states_0.pkl", "training_args.bin", "pytorch_model.bin", "old.tar"):
        folder = tmp_path / f"checkpoint-{len(name)}-{name}"
        folder.mkdir()
        save_file({"w": torch.ones(3)}, folder / "model.safetensors")
        torch.save({"x": Bomb(trace)}, folder / name, _use_new_zipfile_serialization=name != "old.tar")
        (folder / "trainer_state.json").write_text('{"global_step": 3}')
        result = examine(str(folder))
        assert result["verdict"] == "refused" and name in result["detail"], result
    assert not trace.exists()


def test_an_archive_with_two_contents_is_not_healthy(tmp_path: Path) -> None:
    """Another program may load the content that Rung did not read."""
    good, evil = a_pickle(a_dict(step=number(5))), a_pickle(called(named(*MKDIR), text("x")))
    for names in (("a/data.pkl", "b/data.pkl"), ("a/data.pkl", "a/data.pkl"), ("a/data.pkl", "b/x", "b/data.pkl")):
        with zipfile.ZipFile(tmp_path / "step_5.pt", "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zipfile warns about two files of one name
            for name in names:
                archive.writestr(name, good if name == names[0] else evil)
        assert examine(str(tmp_path / "step_5.pt"))["verdict"] == "corrupt"


def test_a_tar_archive_that_is_also_a_pickle_is_refused(tmp_path: Path) -> None:
    """torch.load looks for a tar archive first, and runs what is in it; 0.1.0 read the pickle."""
    content = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    header = tarfile.TarInfo("x")
    header.name = content.decode("latin1")
    block = bytearray(header.tobuf(tarfile.USTAR_FORMAT, "latin1", "strict"))
    path = tmp_path / "step_5.pt"
    path.write_bytes(bytes(block) + b"\0" * 1024)
    result = examine(str(path))
    assert result["verdict"] == "refused" and "tar" in result["detail"]


def test_an_old_torch_is_told_as_unsafe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"step": 1}, tmp_path / "a.pt")
    assert examine(str(tmp_path / "a.pt"))["detail"] == ""
    for version, told in (("2.5.1+cu121", True), ("1.13.0", True), ("2.6.0", False), ("2.10.0a0", False), ("x", False)):
        monkeypatch.setattr(torch, "__version__", version)
        assert ("older than 2.6" in examine(str(tmp_path / "a.pt"))["detail"]) is told
