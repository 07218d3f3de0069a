"""Reads checkpoints that are folders: their kind, whether they are complete, and what their files hold.

A folder is complete only if the file that its kind writes last is there; until then it is unfinished, not corrupt.
"""

from __future__ import annotations

import json
import os
import re
from functools import partial
from typing import Any, Callable, Iterator, TypeVar

from rung_inside.verify.dcp import ENDING, METADATA, read_sharded
from rung_inside.verify.plain_pickle import read_if_pickled
from rung_inside.verify.safetensors_file import read_safetensors
from rung_inside.verify.stored.mapped_file import read_small
from rung_inside.verify.stored.verdict import CORRUPT, TRUNCATED, UNFINISHED, UNREADABLE, UNVERIFIED, Content, Unfit
from rung_inside.verify.torch_file import read_torch

TRAINER_STATE = "trainer_state.json"
TORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt")
PICKLE_ENDINGS = (".pkl", ".pickle", ".th", ".t7")
# No program loads a pickle from such a file.
OTHER_ENDINGS = (
    ".json", ".jsonl", ".txt", ".md", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".py", ".sh", ".csv", ".tsv", ".log",
    ".html", ".xml", ".jinja", ".png", ".jpg", ".jpeg", ".svg", ".gif", ".pdf", ".npy", ".npz",
)  # fmt: skip
# States of random generators: only integers, pickled in ways that torch.load refuses. Their frameworks load them.
RANDOM = re.compile(r"(?:rng_state|random_states).*")
WEIGHTS = re.compile(r"(?:model|pytorch_model|adapter_model|diffusion_pytorch_model)[\w.-]*\.(?:safetensors|bin)")
INDEX = re.compile(r".*\.(?:safetensors|bin)\.index\.json")
TRAINER_FOLDER = re.compile(r"checkpoint-\d+")
MOST_FILES = 10_000
# A state of a million logged lines has about 150 MB.
MOST_JSON = 256_000_000
Read = TypeVar("Read", Content, "Content | None")


def read_folder(folder: str, full: bool) -> Content:
    """Return what a checkpoint folder of any kind holds."""
    names = _names(folder)
    if not names:
        raise Unfit(UNFINISHED, "is empty")
    _check_links(folder, names)
    kind = kind_of(folder, names)
    if kind == "dcp":
        return _with_files_beside(folder, names, full)
    missing = _missing(folder, kind, names)
    if missing is not None:
        raise Unfit(UNFINISHED, missing)
    state = _trainer_state(folder) if kind == "hf" else {}
    contents = list(_contents(folder, names, full))
    if not contents:
        raise Unfit(UNREADABLE, "is a folder without a checkpoint in it")
    return _joined(kind, contents, state)


def _names(folder: str) -> list[str]:
    """Return the path of every file in the folder; links to folders are not followed."""
    found: list[str] = []
    waiting, seen = [""], 0
    while waiting:
        place = waiting.pop()
        with os.scandir(os.path.join(folder, place)) as entries:
            for entry in entries:
                seen += 1
                if seen > MOST_FILES:
                    raise Unfit(UNREADABLE, f"holds more than {MOST_FILES} files")
                path = os.path.join(place, entry.name)
                (waiting if entry.is_dir(follow_symlinks=False) else found).append(path)
    return sorted(found)


def _check_links(folder: str, names: list[str]) -> None:
    """Refuse to judge a folder with a link in it: the job follows it, and it may lead anywhere, and change."""
    for name in names:
        if os.path.islink(os.path.join(folder, name)) and not name.endswith(OTHER_ENDINGS):
            raise Unfit(UNVERIFIED, f"{name[:300]} is a link, which the job would follow and Rung does not")


def kind_of(folder: str, names: list[str]) -> str:
    """Return which program wrote a folder, by its files; also for one that is still being written."""
    tops = {name for name in names if "/" not in name}
    if METADATA in tops or any(name.endswith(ENDING) for name in tops):
        return "dcp"
    if tops & {TRAINER_STATE, "training_args.bin"} or ("optimizer.pt" in tops and "scheduler.pt" in tops):
        return "hf"
    if "optimizer.bin" in tops or any(name.startswith("random_states_") for name in tops):
        return "accelerate"
    if TRAINER_FOLDER.fullmatch(os.path.basename(folder.rstrip("/"))) and any(WEIGHTS.fullmatch(n) for n in tops):
        return "hf"
    return "folder"


def _missing(folder: str, kind: str, names: list[str]) -> str | None:
    """Return what is missing in a folder of this kind, first of all the file written last."""
    tops = {name for name in names if "/" not in name}
    if kind == "hf" and TRAINER_STATE not in tops:
        return f"{TRAINER_STATE}, which is written last, is not there"
    if kind == "accelerate" and not any(name.startswith("random_states_") for name in tops):
        return "random_states_0.pkl, which is written last, is not there"
    for index in (name for name in names if INDEX.fullmatch(name)):
        for shard in _shards(os.path.join(folder, index)):
            if os.path.join(os.path.dirname(index), shard) not in names:
                return f"{shard}, which {index} names, is not there"
    known = any(WEIGHTS.fullmatch(os.path.basename(name)) or name.endswith(ENDING) for name in names)
    if kind in ("hf", "accelerate") and not known and not any(name.startswith("global_step") for name in names):
        return "the weights are not there"
    return None


def _shards(index: str) -> set[str]:
    try:
        return {str(name) for name in json.loads(read_small(index, MOST_JSON))["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unfit(CORRUPT, f"{os.path.basename(index)} is damaged") from None


def _trainer_state(folder: str) -> dict[str, Any]:
    try:
        state = json.loads(read_small(os.path.join(folder, TRAINER_STATE), MOST_JSON))
    except (ValueError, RecursionError):
        raise Unfit(TRUNCATED, f"{TRAINER_STATE} ends too early or is damaged") from None
    return {"global_step": state.get("global_step")} if isinstance(state, dict) else {}


def _contents(folder: str, names: list[str], full: bool) -> Iterator[tuple[str, Content]]:
    inner = {os.path.dirname(name) for name in names if os.path.basename(name) == METADATA}
    for place in sorted(inner):
        yield place, _named(place, read_sharded, os.path.join(folder, place), full)
    for name in names:
        sharded = os.path.dirname(name) in inner and name.endswith((METADATA, ENDING))
        if sharded or name.endswith(OTHER_ENDINGS):
            continue
        content = _named(name, _reader(name), os.path.join(folder, name), full)
        if content is not None:
            yield name, content


def _reader(name: str) -> Callable[[str, bool], Content | None]:
    """Return what reads a file: by its ending, or by its content."""
    if name.endswith(".safetensors"):
        return partial(read_safetensors, follow=False)
    if name.endswith(TORCH_ENDINGS):
        return partial(read_torch, follow=False)
    return partial(read_if_pickled, surely=name.endswith(PICKLE_ENDINGS))


def _named(name: str, read: Callable[[str, bool], Read], path: str, full: bool) -> Read:
    """Read one file of a folder; an error names the file."""
    try:
        return read(path, full)
    except Unfit as unfit:
        raise Unfit(unfit.verdict, f"{name}: {unfit.detail}") from None


def _joined(kind: str, contents: list[tuple[str, Content]], state: dict[str, Any]) -> Content:
    def tensors() -> Iterator[tuple[str, Any]]:
        for name, content in contents:
            for inner, tensor in content.tensors:
                yield f"{name}: {inner}" if name else inner, tensor

    foreign = tuple(dict.fromkeys(each for name, content in contents for each in content.foreign if _kept(name)))
    inside = {name: content.state for name, content in contents if isinstance(content.state, dict)}
    steps = [each for name, each in inside.items() if _tells_the_step(name)]
    for each in steps:
        state = {**{key: value for key, value in each.items() if isinstance(value, (int, float))}, **state}
    bare = kind in ("hf", "accelerate") and not any("optim" in name for name, _ in contents)
    note = "no optimizer state in it" if bare else ""
    return Content(kind, tensors(), {**inside, **state}, foreign, note)


def _kept(name: str) -> bool:
    """Return whether a file matters for the allow-list; the framework loads its own files itself."""
    file = os.path.basename(name)
    return file != "training_args.bin" and RANDOM.fullmatch(file) is None


def _tells_the_step(name: str) -> bool:
    """Return whether a number called `step` in a file may be the step; in random states it is another."""
    return RANDOM.fullmatch(os.path.basename(name)) is None and not name.startswith(
        ("optimizer", "scheduler", "training_args")
    )


def _with_files_beside(folder: str, names: list[str], full: bool) -> Content:
    sharded = read_sharded(folder, full)
    beside = [(name, content) for name, content in _contents(folder, names, full) if name]
    return _joined("dcp", [("", sharded), *beside], dict(sharded.state))
