"""Tests the verdicts on checkpoint folders: complete only with their last file, and all files are checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from rung_inside.verify import examine
from safetensors.torch import load_file, save_file

Made = tuple[torch.nn.Module, dict[str, Any]]


def trained() -> Made:
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(1, 8)).sum().backward()
        optimizer.step()
    return model, optimizer.state_dict()


def trainer_folder(folder: Path, *, sharded: bool = False) -> Path:
    """Write the files of a checkpoint of the transformers Trainer."""
    model, optimizer = trained()
    folder.mkdir()
    if sharded:
        shards = {"weight": "model-00001-of-00002.safetensors", "bias": "model-00002-of-00002.safetensors"}
        for name, file in shards.items():
            save_file({name: model.state_dict()[name]}, folder / file)
        index = {"metadata": {}, "weight_map": shards}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    torch.save(optimizer, folder / "optimizer.pt")
    torch.save({"last_epoch": 100, "_step_count": 101}, folder / "scheduler.pt")
    torch.save({"python": (3, (1, 2), None), "cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    (folder / "config.json").write_text("{}")
    (folder / "trainer_state.json").write_text(json.dumps({"epoch": 1.5, "global_step": 100, "log_history": []}))
    return folder


def accelerate_folder(folder: Path) -> Path:
    model, optimizer = trained()
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    torch.save(optimizer, folder / "optimizer.bin")
    torch.save({"last_epoch": 3}, folder / "scheduler.bin")
    torch.save({"step": 0, "random_state": (3, (1, 2), None)}, folder / "random_states_0.pkl")
    return folder


def sharded_folder(folder: Path) -> Path:
    model, optimizer = trained()
    dcp.save({"model": model.state_dict(), "optim": optimizer, "step": 70}, checkpoint_id=folder, no_dist=True)
    return folder


def examined(path: Path) -> tuple[str, int | None, str]:
    result = examine.examine(str(path))
    return result["verdict"], result["step"], result["kind"]


KINDS: dict[str, tuple[Callable[[Path], Path], str, int, str, str]] = {
    "trainer": (trainer_folder, "checkpoint-100", 100, "hf", "trainer_state.json"),
    "accelerate": (accelerate_folder, "step_60", 60, "accelerate", "random_states_0.pkl"),
    "sharded": (sharded_folder, "step_70", 70, "dcp", ".metadata"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_healthy_with_its_last_file_and_unfinished_without_it(tmp_path: Path, kind: str) -> None:
    make, name, step, word, last = KINDS[kind]
    folder = make(tmp_path / name)
    assert examined(folder) == ("healthy", step, word)
    assert examine.examine(str(folder), full=False)["verdict"] == "healthy"
    (folder / last).rename(tmp_path / last)
    result = examine.examine(str(folder))
    assert result["verdict"] == "unfinished" and last in result["detail"]
    (tmp_path / last).rename(folder / last)
    for file in sorted(each for each in folder.iterdir() if each.suffix in (".safetensors", ".bin", ".pt", ".distcp")):
        whole = file.read_bytes()
        file.write_bytes(whole[: int(len(whole) * 0.8)])
        result = examine.examine(str(folder))
        assert result["verdict"] == "truncated" and file.name in result["detail"], file.name
        file.write_bytes(whole)
    assert examined(folder)[0] == "healthy"


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_in_a_torch_file_of_a_folder_is_found(tmp_path: Path, kind: str) -> None:
    make, name, _, _, _ = KINDS[kind]
    folder = make(tmp_path / name)
    files = [each for each in folder.iterdir() if each.suffix in (".bin", ".pt", ".distcp")]
    file = max(files, key=lambda each: each.stat().st_size)
    raw, number = bytearray(file.read_bytes()), trained()[1]["state"][0]["exp_avg"][0, 0].numpy().tobytes()
    raw[raw.index(number * 8)] ^= 1  # every input is 1, so all averages of a row are the same
    file.write_bytes(raw)
    assert examined(folder)[0] == "corrupt"


def test_a_folder_without_a_shard_of_its_index_is_not_healthy(tmp_path: Path) -> None:
    folder = trainer_folder(tmp_path / "checkpoint-100", sharded=True)
    assert examined(folder) == ("healthy", 100, "hf")
    (folder / "model-00002-of-00002.safetensors").unlink()
    result = examine.examine(str(folder))
    assert result["verdict"] == "unfinished" and "model-00002-of-00002.safetensors" in result["detail"]
    (folder / "model.safetensors.index.json").write_text('{"weight_map":')
    assert examined(folder)[0] == "corrupt"


def test_numbers_that_are_not_finite_are_found_in_weights_and_in_the_optimizer(tmp_path: Path) -> None:
    folder = trainer_folder(tmp_path / "checkpoint-100")
    state = load_file(folder / "model.safetensors")
    state["weight"][2, 3] = float("nan")
    save_file(state, folder / "model.safetensors")
    result = examine.examine(str(folder))
    assert result["verdict"] == "poisoned" and "model.safetensors: weight" in result["detail"]
    other = accelerate_folder(tmp_path / "step_60")
    optimizer = torch.load(other / "optimizer.bin", weights_only=True)
    optimizer["state"][1]["exp_avg"][0] = float("inf")
    torch.save(optimizer, other / "optimizer.bin")
    result = examine.examine(str(other))
    assert result["verdict"] == "poisoned" and "optimizer.bin: state.1.exp_avg" in result["detail"]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_numbers_that_are_not_finite_are_found_in_a_sharded_folder(tmp_path: Path) -> None:
    model, optimizer = trained()
    optimizer["state"][0]["exp_avg"][0, 0] = float("nan")
    dcp.save({"model": model.state_dict(), "optim": optimizer, "step": 7}, checkpoint_id=tmp_path / "d", no_dist=True)
    result = examine.examine(str(tmp_path / "d"))
    assert (result["verdict"], result["step"]) == ("poisoned", 7) and "optim.state.0.exp_avg" in result["detail"]
    (tmp_path / "d" / "__0_0.distcp").unlink()
    assert examined(tmp_path / "d")[0] == "unfinished"
    (tmp_path / "d" / ".metadata").write_bytes(b"\x80\x04junk")
    assert examined(tmp_path / "d")[0] == "corrupt"


def test_a_folder_that_no_framework_wrote_is_judged_by_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "step_5"
    folder.mkdir()
    assert examined(folder)[0] == "unfinished"
    (folder / "notes.txt").write_text("nothing")
    assert examined(folder)[0] == "unreadable"
    torch.save({"w": torch.ones(3)}, folder / "model.pt")
    assert examined(folder) == ("healthy", 5, "folder")
    torch.save({"w": torch.ones(3) / 0}, folder / "ema.pt")
    assert examined(folder)[0] == "poisoned"


def test_an_epoch_folder_takes_its_step_from_the_optimizer(tmp_path: Path) -> None:
    assert examined(accelerate_folder(tmp_path / "epoch_2")) == ("healthy", 3, "accelerate")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_the_real_trainer_is_healthy(tmp_path: Path) -> None:
    import transformers  # takes seconds

    config = transformers.GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=11, n_positions=8)
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, save_steps=2, per_device_train_batch_size=1, report_to=[], use_cpu=True
    )
    data = [{"input_ids": torch.arange(4), "labels": torch.arange(4)}] * 4
    transformers.Trainer(transformers.GPT2LMHeadModel(config), arguments, train_dataset=data).train()
    assert examined(tmp_path / "checkpoint-2") == ("healthy", 2, "hf")
    shutil.rmtree(tmp_path / "checkpoint-2")
