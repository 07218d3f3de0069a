"""Tests that no checkpoint is resumed from that makes a library call what the checkpoint has put somewhere.

Python and the libraries call attributes by their names while they load: `__setstate__`, `append`, `keys`, `detach`. All
attempts here are real: one process loads each of them with torch.load, and what it did is looked up.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rung_inside.verify.examine import examine

from tests.support.hostile_checkpoints import (
    a_dict,
    a_pickle,
    a_tuple,
    an_archive,
    attribute,
    called,
    made,
    named,
    number,
    text,
)

NAMESPACE = named("argparse", "Namespace")
POSIX_PATH = named("pathlib", "PosixPath")
TOUCH = attribute(POSIX_PATH, "touch")
WRITE = attribute(POSIX_PATH, "write_text")
RELU = named("torch.nn.functional", "relu")
FROM_TYPE = named("torch._tensor", "_rebuild_from_type_v2")
PARTIAL = named("functools", "partial")
ORDERED = named("collections", "OrderedDict")
MODULES = named("torch.nn.modules.container", "ModuleDict")

# Loads each file that it is given in a process of its own, as a job does.
SCRIPT = """
import os
import subprocess
import sys
from os import *

shell = subprocess.getoutput

class Options(dict):
    __getattr__ = dict.__getitem__

class Runner(subprocess.Popen):
    pass

def go(*arguments):
    os.mkdir(os.environ["TRACE"])

if __name__ == "__main__":
    import torch
    usual = torch.nn.Module.load_state_dict.__defaults__
    for path in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            os.environ["TRACE"] = path + ".trace"
            try:
                str(torch.load(path, weights_only=False))
            except BaseException as error:
                print(path, repr(error), file=sys.stderr)
            if torch.nn.Module.load_state_dict.__defaults__ != usual:
                go()
            os._exit(0)
        if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            os.mkdir(path + ".trace")
"""


def a_path(trace: Path) -> bytes:
    return called(POSIX_PATH, text(str(trace)))


def a_module_that_writes(trace: Path) -> bytes:
    """Return a module whose call writes a file: its hook hands out the arguments of its `forward`."""
    modules = b"})" + a_tuple(a_path(trace), text("x")) + b"s"
    hooks = b"}" + number(0) + attribute(MODULES, "pop") + b"s"
    empty = dict.fromkeys(("_forward_hooks", "_backward_hooks", "_backward_pre_hooks"), b"}")
    state = a_dict(forward=WRITE, _modules=modules, _forward_pre_hooks=hooks, _parameters=b"}", _buffers=b"}", **empty)
    with_names = a_dict(_forward_hooks_with_kwargs=b"}", _forward_pre_hooks_with_kwargs=b"}")
    return MODULES + b")\x81" + state[:-1] + with_names[2:] + b"b"


def bytes_as_objects(trace: Path) -> bytes:
    state = a_tuple(number(3), text("|"), b"NNN", number(-1), number(-1), number(0))
    kind = called(named("numpy", "dtype"), text("O8"), b"\x89", b"\x88") + state + b"b"
    array = called(
        named("numpy._core.multiarray", "_reconstruct"), named("numpy", "ndarray"), number(0) + b"\x85", b"C\x01b"
    )
    return array + a_tuple(number(1), number(1) + b"\x85", kind, b"\x89", b"C\x08AAAAAAAA") + b"b"


ATTEMPTS: dict[str, Callable[[Path], bytes]] = {
    "a second state": lambda trace: made(NAMESPACE, __setstate__=TOUCH) + a_path(trace) + b"b",
    "append": lambda trace: made(NAMESPACE, append=TOUCH) + a_path(trace) + b"a",
    "add": lambda trace: made(NAMESPACE, add=TOUCH) + b"(" + a_path(trace) + b"\x90",
    "an attribute that is set one by one": lambda trace: made(NAMESPACE) + b"N" + a_dict(append=TOUCH) + b"\x86b"
    + a_path(trace) + b"a",
    "a name that is a text of another class": lambda trace: NAMESPACE + b")\x81}"
    + called(named("torch.torch_version", "TorchVersion"), text("append")) + TOUCH + b"sb" + a_path(trace) + b"a",
    "the state of a dict": lambda trace: ORDERED + b")R" + a_dict(__setstate__=TOUCH) + b"b" + a_path(trace) + b"b",
    "the keys of a dict": lambda trace: called(ORDERED, made(NAMESPACE, keys=a_module_that_writes(trace))),
    "a function of the script": lambda trace: made(NAMESPACE, append=named("__main__", "go")) + number(1) + b"a",
    "another name in the script": lambda trace: made(NAMESPACE, append=named("__main__", "shell"))
    + text(f"touch '{trace}'") + b"a",
    "everything that the script imports": lambda trace: made(NAMESPACE, append=named("__main__", "system"))
    + text(f"touch '{trace}'") + b"a",
    "a class of the script that runs programs": lambda trace: called(
        named("__main__", "Runner"), b"](" + text("touch") + text(str(trace)) + b"e"
    ),
    "items as attributes": lambda trace: made(named("__main__", "Options")) + text("__setstate__") + TOUCH + b"s"
    + a_path(trace) + b"b",
    "a tensor that is none": lambda trace: called(
        named("torch.nn.parameter", "Parameter"), made(NAMESPACE, detach=named("__main__", "go"))
    ),
    "the state of an optimizer": lambda trace: made(
        named("torch.optim.adam", "Adam"), defaults=b"}", state=made(NAMESPACE, get=named("__main__", "go")),
        param_groups=b"]" + a_dict(params=b"]" + number(1) + b"a") + b"a",
    ),
    "a kept call as a tensor": lambda trace: made(
        NAMESPACE, append=called(
            FROM_TYPE, PARTIAL, PARTIAL, a_tuple(RELU), a_tuple(WRITE, a_tuple(a_path(trace)), b"}", b"}"),
        ),
    ) + text("x") + b"a",
    "a dict that makes its values": lambda trace: made(
        named("torch.optim.adam", "Adam"), defaults=b"}", state=b"}",
        param_groups=b"]" + called(named("collections", "defaultdict"), named("__main__", "go")) + b"a",
    ),
    "a function of a library that changes": lambda trace: attribute(
        named("torch.nn.modules.module", "Module"), "load_state_dict"
    ) + b"N" + a_dict(__defaults__=a_tuple(b"\x89", b"\x89")) + b"\x86b",
    "bytes as objects": bytes_as_objects,
}  # fmt: skip


def two_contents(path: Path, first: str, second: str) -> Path:
    """Write an archive with the harmless content last; torch takes any file that has the name in some case."""
    evil = a_pickle(called(named("posix", "mkdir"), text(f"{path}.trace")))
    writer = torch._C.PyTorchFileWriter(str(path))
    for name, content in ((first, evil), (second, a_pickle(a_dict(step=number(5))))):
        writer.write_record(name, content, len(content))
    writer.write_end_of_file()
    return path


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a job whose script has loaded every attempt."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(SCRIPT)
    paths = [folder / f"step_{at}.pt" for at in range(len(ATTEMPTS))]
    for path, attempt in zip(paths, ATTEMPTS.values(), strict=True):
        an_archive(path, a_pickle(a_dict(step=number(5), x=attempt(Path(f"{path}.trace")))))
    paths.append(two_contents(folder / "upper.pt", "DATA.PKL", "data.pkl"))
    paths.append(two_contents(folder / "only_upper.pt", "Data.pkl", "data/0"))
    done = subprocess.run([sys.executable, "train.py", *map(str, paths)], cwd=folder, capture_output=True, text=True)
    (folder / "errors").write_text(done.stderr)
    return folder


@pytest.fixture
def in_job(job: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(job)
    monkeypatch.setenv("RUNG_RUN", "python train.py")
    return job


@pytest.mark.parametrize("what", ATTEMPTS)
def test_what_a_library_would_call_is_refused(in_job: Path, what: str) -> None:
    path = in_job / f"step_{list(ATTEMPTS).index(what)}.pt"
    assert Path(f"{path}.trace").exists(), (in_job / "errors").read_text()
    for full in (True, False):
        result = examine(str(path), full)
        assert result["verdict"] == "refused", result


@pytest.mark.parametrize("name", ["upper.pt", "only_upper.pt"])
def test_a_content_whose_name_has_another_case_is_found(in_job: Path, name: str) -> None:
    assert (in_job / f"{name}.trace").exists(), (in_job / "errors").read_text()
    assert examine(str(in_job / name))["verdict"] == "corrupt"


# Parts of such attempts. Each of them is refused by itself.
PARTS: dict[str, bytes] = {
    "a method of a class": TOUCH,
    "a kept call made as a tensor": called(
        FROM_TYPE, PARTIAL, PARTIAL, a_tuple(RELU), a_tuple(RELU, b")", b"}", b"}"),
    ),
    "a tensor of a class that is none": called(
        FROM_TYPE, named("torch._utils", "_rebuild_meta_tensor_no_storage"),
        NAMESPACE, a_tuple(named("torch", "float32"), b")", b")", b"\x89"), b"N",
    ),
    "a method of a harmless kind": made(NAMESPACE, append=RELU),
    "a module as a method": made(NAMESPACE, keys=made(MODULES)),
    "a second state that is harmless": made(NAMESPACE, x=number(1)) + a_dict(y=number(2)) + b"b",
    "attributes that come later": b"}\x94" + NAMESPACE + b")\x81h\x00b0" + text("append") + RELU + b"s",
    "items of a module": made(MODULES, _modules=b"}") + text("x") + number(1) + b"s",
    "items of a path": called(POSIX_PATH, text("x")) + number(1) + b"a",
    "a state for a path": called(POSIX_PATH, text("x")) + a_dict(x=number(1)) + b"b",
    "a state for an enum": called(named("torch.amp.grad_scaler", "OptState"), number(0)) + a_dict(x=number(1)) + b"b",
    "items of a class": NAMESPACE + text("x") + number(1) + b"s",
    "a dict of something else": called(ORDERED, made(NAMESPACE)),
    "a dict with a default of something else": called(named("collections", "defaultdict"), made(NAMESPACE)),
    "a path of something else": called(POSIX_PATH, made(NAMESPACE)),
    "an object as a key": b"}" + made(named("omegaconf.dictconfig", "DictConfig")) + number(1) + b"s",
    "an object as a key in a tuple": b"}" + made(named("omegaconf.dictconfig", "DictConfig")) + b"\x85" + b"Ns",
    "a storage as a value": named("torch", "FloatStorage"),
    "a module with a state that is no dict": MODULES + b")\x81" + made(NAMESPACE) + b"b",
    "an enum with more members": called(named("torch.amp.grad_scaler", "OptState"), number(0), text("x")),
    "an array of another class": called(
        named("numpy._core.multiarray", "_reconstruct"), POSIX_PATH, number(0) + b"\x85", b"C\x01b"
    ),
    "a type that belongs to NumPy": called(named("numpy", "dtype"), text("f8"))
    + a_tuple(number(3), text("|"), b"NNN", number(-1), number(-1), number(0)) + b"b",
    "a type with a field outside of it": called(named("numpy", "dtype"), text("V8"), b"\x89", b"\x88")
    + a_tuple(
        number(3), text("|"), b"N", text("a") + b"\x85",
        a_dict(a=called(named("numpy", "dtype"), text("f8")) + number(9) + b"\x86"), number(8), number(1), number(0),
    ) + b"b",
    "objects in a field": called(named("numpy", "dtype"), text("V8"), b"\x89", b"\x88")
    + a_tuple(
        number(3), text("|"), b"N", text("a") + b"\x85",
        a_dict(a=called(named("numpy", "dtype"), text("O8")) + number(0) + b"\x86"), number(8), number(1), number(0),
    ) + b"b",
}  # fmt: skip


@pytest.mark.parametrize("what", PARTS)
def test_each_part_of_an_attempt_is_refused(in_job: Path, tmp_path: Path, what: str) -> None:
    path = an_archive(tmp_path / "step_5.pt", a_pickle(a_dict(step=number(5), x=PARTS[what])))
    result = examine(str(path))
    assert result["verdict"] == "refused", result
