"""Tests which job file a script gets: by how it takes its options, saves, and resumes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rung.jobs.spec.load import parse_spec
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.job_draft.asked import Asked
from rung.recovery.doctor.job_draft.draft import draft_job
from rung.recovery.doctor.job_draft.job_text import job_text

TORCH = "import argparse, glob, os\nfrom pathlib import Path\nimport torch\n"
LOOP = "for step in range(9):\n    loss.backward()\n"
SAVE = "    torch.save({'model': m, 'optimizer': o, 'step': step}, %s)\n"
OUT = "p = argparse.ArgumentParser()\np.add_argument('--out-dir', '-o', default='runs')\n"
ARGS = "args = p.parse_args()\n"


def written(source: str, *arguments: str, **more: Any) -> tuple[dict[str, Any], str]:
    """Return the fields of the job file for a script, and its text; the text is a valid job file."""
    asked = Asked("train", "train.py", arguments, folder="/home/me/project", **more)
    text = job_text(draft_job(Script(source.encode()), asked), ["Written for a test."])
    assert parse_spec(text.encode()).name == "train"
    return yaml.safe_load(text), text


def one_line(text: str) -> str:
    return " ".join(line.removeprefix("#").strip() for line in text.splitlines())


PATHS = {
    "join": ("os.path.join(args.out_dir, f'step_{step + 1}.pt')", "step_*.pt"),
    "slash": ("Path(args.out_dir) / f'ckpt-{step:06d}.pth'", "ckpt-*.pth"),
    "text": ("f'{args.out_dir}/model.pt'", "model.pt"),
    "format": ("os.path.join(args.out_dir, 'e{}_s{}.pt'.format(epoch, step))", "e*.pt"),
    "percent": ("os.path.join(args.out_dir, 'model_%d.pt' % step)", "model_*.pt"),
    "sum": ("args.out_dir + '/last.ckpt'", "last.ckpt"),
}


@pytest.mark.parametrize(("path", "pattern"), PATHS.values(), ids=PATHS)
def test_the_folder_is_the_jobs_own_where_an_option_gives_it(path: str, pattern: str) -> None:
    job, text = written(TORCH + OUT + ARGS + LOOP + SAVE % path)
    assert job["run"] == "python train.py --out-dir {checkpoint_dir}"
    assert job["checkpoint"] == {"pattern": pattern} and job["knobs"] == {"mode": "zero-edit"}
    assert "# train.py:5 takes --out-dir: a folder of the job's own." in text
    assert "# train.py:9 torch.save() writes the checkpoints." in text


@pytest.mark.parametrize("given", [("-o", "here"), ("--out-dir", "here"), ("--out-dir=here",)])
def test_a_folder_that_was_given_is_replaced_and_all_else_stays(given: tuple[str, ...]) -> None:
    source = TORCH + OUT + ARGS + LOOP + SAVE % "os.path.join(args.out_dir, 'ckpt.pt')"
    job, text = written(source, "--name", "a {b} c", *given, "--lr=1")
    assert job["run"] == "python train.py --name 'a {{b}} c' --out-dir {checkpoint_dir} --lr=1"
    assert "instead of here" in text
    assert parse_spec(text.encode()).run[3] == "a {{b}} c"


def test_an_option_for_the_whole_path_gets_the_file_in_the_folder() -> None:
    option = "p = argparse.ArgumentParser()\np.add_argument('--save', default='model.pt')\n"
    job, _ = written(TORCH + option + ARGS + LOOP + SAVE % "args.save")
    assert job["run"] == "python train.py --save {checkpoint_dir}/model.pt"
    assert job["checkpoint"] == {"pattern": "model.pt"}


def test_the_file_is_found_behind_a_helper_a_temporary_name_and_an_open_file() -> None:
    helper = (
        "def save(state, folder, step):\n    path = Path(folder) / f'step_{step}.pt'\n"
        "    draft = path.with_suffix('.tmp')\n"
        "    with draft.open('wb') as file:\n        torch.save(state, file)\n    draft.replace(path)\n"
    )
    job, _ = written(TORCH + OUT + ARGS + helper + LOOP + "    save({}, args.out_dir, step)\n")
    assert job["run"].endswith("--out-dir {checkpoint_dir}") and job["checkpoint"] == {"pattern": "step_*.pt"}


def test_the_state_of_the_run_is_preferred_to_the_best_weights() -> None:
    best = "    torch.save(model.state_dict(), os.path.join(args.out_dir, 'best.pt'))\n"
    job, text = written(TORCH + OUT + ARGS + LOOP + best + SAVE % "os.path.join(args.out_dir, 'last.pt')")
    assert job["checkpoint"] == {"pattern": "last.pt"}
    assert "Also saved, and not used to go on from: train.py:9" in text


def test_a_fixed_folder_is_given_as_it_is_with_what_that_means() -> None:
    load = "found = sorted(glob.glob('out/*.pt'))\nif found:\n    torch.load(found[-1])\n"
    job, text = written(TORCH + load + LOOP + SAVE % "f'out/step_{step}.pt'")
    assert job["checkpoint"] == {"dir": "/home/me/project/out", "pattern": "step_*.pt"}
    assert "The script always writes to out" in text and "after a fault it may load a spoilt one" in one_line(text)
    in_place, text = written(TORCH + LOOP + SAVE % "'ckpt.pt'")
    assert in_place["checkpoint"] == {"dir": "/home/me/project", "pattern": "ckpt.pt"}
    assert "keeps versions of it" in text and "spoilt" not in text


def test_a_variable_gives_the_folder() -> None:
    job, _ = written(TORCH + "OUT = os.environ.get('OUT', 'x')\n" + LOOP + SAVE % "os.path.join(OUT, 'a.pt')")
    assert job["envs"] == {"OUT": "{checkpoint_dir}"} and job["run"] == "python train.py"


BY_RUNG = {"by": "rung", "every": 500}


def test_rung_saves_for_a_script_that_saves_nothing_and_the_file_says_what_that_means() -> None:
    job, text = written(TORCH + "from transformers import AutoModel\n" + LOOP)
    assert job["checkpoint"] == BY_RUNG and job["knobs"] == {"mode": "zero-edit"}
    said = one_line(text)
    assert "train.py saves nothing while it trains, as far as is seen. So Rung saves for it every 500 updates" in said
    assert "any other loop makes all of its steps once more" in said.lower() and "NO CHECKPOINTS" not in text


def test_rung_does_not_save_where_code_that_was_not_read_may_save() -> None:
    job, text = written(TORCH + "from own import save_checkpoint\n" + LOOP + "    save_checkpoint(step)\n")
    assert "checkpoint" not in job and "whether save_checkpoint() in line 7 saves checkpoints" in one_line(text)
    assert "write this, and Rung saves for it: checkpoint: {by: rung, every: 500}" in one_line(text)
    plots = "    plt.savefig('a.png')\nmodel.save_pretrained('out')\n"
    assert written(TORCH + LOOP + plots)[0]["checkpoint"] == BY_RUNG


NOT_ITS_OWN_LOOP = {
    "a Trainer": "from transformers import Trainer\nfrom own import arguments\nTrainer(args=arguments).train()\n",
    "a class of Trainer": "from trl import SFTTrainer\nclass Mine(SFTTrainer):\n    def compute_loss(self, m): ...\n",
    "Lightning": "import lightning as L\nclass M(L.LightningModule):\n    def training_step(self, b): ...\n",
    "Accelerate": "from accelerate import Accelerator\nfor x in y:\n    accelerator.backward(x)\n",
    "a loop elsewhere": "import torch\nfrom own import train\ntrain()\n",
}


@pytest.mark.parametrize("source", NOT_ITS_OWN_LOOP.values(), ids=NOT_ITS_OWN_LOOP)
def test_rung_saves_for_no_training_that_is_not_the_scripts_own_loop(source: str) -> None:
    assert "checkpoint" not in written(source)[0]


def test_a_folder_that_is_another_one_in_every_run_is_told_so() -> None:
    source = TORCH + "import time\nfolder = f'runs/{time.time()}'\n" + LOOP + SAVE % "f'{folder}/ckpt.pt'"
    assert "checkpoint" not in written(TORCH + LOOP + SAVE % "os.path.expanduser('~/runs/a.pt')")[0]
    job, text = written(source)
    assert "checkpoint" not in job and "line 8 writes cannot be told from the code" in one_line(text)


# How it resumes

RESUME = {
    "a path": ("p.add_argument('--resume', default='')\n", "if args.resume:\n    torch.load(args.resume)\n"),
    "not None": ("p.add_argument('--resume')\n", "if args.resume is not None:\n    torch.load(args.resume)\n"),
}


@pytest.mark.parametrize(("option", "load"), RESUME.values(), ids=RESUME)
def test_an_option_for_the_path_takes_the_checkpoint(option: str, load: str) -> None:
    source = TORCH + OUT + option + ARGS + load + LOOP + SAVE % "os.path.join(args.out_dir, f'{step}.pt')"
    job, text = written(source)
    assert job["run"] == "python train.py --out-dir {checkpoint_dir} --resume {checkpoint}"
    assert "run_on_resume" not in job and "# A relaunch resumes: train.py:9" in text


SWITCHES = {
    "switch": ("p.add_argument('--resume', action='store_true')\n", "args.resume", "--resume"),
    "word": ("p.add_argument('--init-from', default='scratch')\n", "args.init_from == 'resume'", "--init-from resume"),
}


@pytest.mark.parametrize(("option", "test", "words"), SWITCHES.values(), ids=SWITCHES)
def test_another_option_to_resume_is_in_the_command_of_a_relaunch(option: str, test: str, words: str) -> None:
    load = f"path = os.path.join(args.out_dir, 'ckpt.pt')\nif {test}:\n    torch.load(path)\n"
    job, _ = written(TORCH + OUT + option + ARGS + load + LOOP + SAVE % "path")
    assert job["run"] == "python train.py --out-dir {checkpoint_dir}"
    assert job["run_on_resume"] == f"python train.py --out-dir {{checkpoint_dir}} {words}"
    assert job["checkpoint"] == {"pattern": "ckpt.pt"}


def test_a_load_that_no_option_reaches_is_no_checkpoint_to_go_on_from() -> None:
    load = "RESUME = ''\nif RESUME == 'yes':\n    torch.load('out/ckpt.pt')\n"
    job, text = written(TORCH + load + LOOP + SAVE % "'out/ckpt.pt'")
    assert "checkpoint" not in job and "a relaunch would not load it" in one_line(text)


def test_pretrained_weights_are_no_checkpoint_of_the_run() -> None:
    load = (
        "p.add_argument('--pretrained')\nargs = p.parse_args()\nif args.pretrained:\n    torch.load(args.pretrained)\n"
    )
    job, _ = written(TORCH + OUT + load + LOOP + SAVE % "os.path.join(args.out_dir, 'a.pt')")
    assert "pretrained" not in job["run"]


def test_constants_that_options_replace_are_settings() -> None:
    source = (
        "import os, torch\nout_dir = 'out'\ninit_from = 'scratch'\nexec(open('configurator.py').read())\n"
        "if init_from == 'resume':\n    torch.load(os.path.join(out_dir, 'ckpt.pt'))\n"
    )
    job, _ = written(source + LOOP + SAVE % "os.path.join(out_dir, 'ckpt.pt')", "config/tiny.py")
    assert job["run"] == "python train.py config/tiny.py --out_dir={checkpoint_dir}"
    assert job["run_on_resume"] == f"{job['run']} --init_from=resume"


def test_a_script_that_reads_its_rank_is_started_by_torchrun() -> None:
    job, _ = written(TORCH + "rank = int(os.environ['LOCAL_RANK'])\n" + LOOP, "--epochs", "3")
    assert (job["run"], job["ranks"]) == ("python train.py --epochs 3", 1)
    assert "ranks" not in written(TORCH + "rank = os.environ.get('LOCAL_RANK')\n" + LOOP)[0]


NEVER = {
    "not asked for": (
        "p.add_argument('--keep', action='store_true')\n",
        "if args.keep:\n",
        "is called only if args.keep",
    ),
    "only at the end": ("", "if True:\n", "is in no loop, so it saves only once"),
}


@pytest.mark.parametrize(("option", "guard", "why"), NEVER.values(), ids=NEVER)
def test_a_save_that_is_not_made_while_it_trains_is_no_checkpoint(option: str, guard: str, why: str) -> None:
    job, text = written(TORCH + OUT + option + ARGS + "step = 1\n" + LOOP + guard + SAVE % "'a.pt'")
    assert job["checkpoint"] == BY_RUNG and why in one_line(text)


def test_weights_alone_are_named_as_such() -> None:
    _, text = written(TORCH + LOOP + "    torch.save(model.state_dict(), f'out/{step}.pt')\n")
    assert "train.py:6 seems to save weights alone" in one_line(text)


def test_the_path_of_a_trainer_class_of_the_script_is_followed() -> None:
    trainer = "class Runner:\n    def __init__(self, model, path):\n        self.path = path\n"
    trainer += "    def train(self):\n        for step in range(3):\n            torch.save({}, self.path)\n"
    job, _ = written(TORCH + OUT + ARGS + trainer + "Runner(1, os.path.join(args.out_dir, 'snap.pt')).train()\n")
    assert job["checkpoint"] == {"pattern": "snap.pt"} and job["run"].endswith("--out-dir {checkpoint_dir}")


# Frameworks


def test_click_options_are_read() -> None:
    source = (
        "import click, torch\n@click.command()\n@click.option('--out', 'folder', default='runs')\n"
        "@click.option('--resume/--no-resume', default=False)\ndef main(folder, resume):\n"
        "    if resume:\n        torch.load(f'{folder}/ckpt.pt')\n    for step in range(9):\n        loss.backward()\n"
        "        torch.save({'optimizer': o, 'step': step}, f'{folder}/ckpt.pt')\n"
    )
    job, _ = written(source)
    assert job["run"] == "python train.py --out {checkpoint_dir}"
    assert job["run_on_resume"] == "python train.py --out {checkpoint_dir} --resume"


def test_hydra_keys_are_overridden() -> None:
    source = (
        "import hydra, torch\n@hydra.main(config_path='conf', config_name='c')\ndef main(cfg):\n"
        "    for step in range(9):\n        torch.save({}, f'{cfg.train.out}/step_{step}.pt')\n"
    )
    job, _ = written(source, "train.out=mine", "model=small")
    assert job["run"] == "python train.py train.out={checkpoint_dir} model=small"


TRAINER = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"


def test_the_trainer_of_transformers_saves_to_its_output_dir() -> None:
    job, text = written(TRAINER + "a = TrainingArguments('out', save_total_limit=2)\nTrainer(args=a).train()\n")
    assert job["checkpoint"] == {"dir": "/home/me/project/out", "pattern": "checkpoint-*"}
    assert "zero-edit gives the checkpoint to the Trainer" in one_line(text) and "keeps two checkpoints" in text
    parsed = "m, a = HfArgumentParser((Model, TrainingArguments)).parse_args_into_dataclasses()\nTrainer(args=a)\n"
    job, _ = written(TRAINER + parsed, "--output_dir", "mine", "--fp16")
    assert job["run"] == "python train.py --output_dir {checkpoint_dir} --fp16"
    assert job["checkpoint"] == {"pattern": "checkpoint-*"}
    job, text = written(TRAINER + "Trainer(args=TrainingArguments(output_dir='out', save_strategy='no'))\n")
    assert "checkpoint" not in job and "NO CHECKPOINTS: save_strategy is 'no'" in text


def test_lightning_saves_where_its_callback_says() -> None:
    start = "import lightning as L\nfrom lightning.pytorch.callbacks import ModelCheckpoint\n"
    job, text = written(start + "t = L.Trainer(callbacks=[ModelCheckpoint(dirpath='ckpts')])\nt.fit(m)\n")
    assert job["checkpoint"] == {"dir": "/home/me/project/ckpts", "pattern": "*.ckpt"}
    assert "keeps one checkpoint" in text
    job, text = written(start + "L.Trainer(default_root_dir='r').fit(m)\n")
    assert job["checkpoint"] == {"pattern": "*.ckpt"} and "train.py:3 Trainer() of Lightning writes" in text
    job, text = written(start + "L.Trainer(callbacks=[ModelCheckpoint(save_top_k=0)]).fit(m)\n")
    assert "checkpoint" not in job and "save_top_k is 0" in one_line(text)
    job, text = written(start + "L.Trainer(enable_checkpointing=False).fit(m)\n")
    assert "checkpoint" not in job and "enable_checkpointing is False" in one_line(text)


def test_accelerate_saves_folders() -> None:
    source = (
        "import os\nfrom accelerate import Accelerator\n" + OUT.replace("argparse", "__import__('argparse')") + ARGS
    )
    job, _ = written(
        source + "for step in range(9):\n    acc.save_state(os.path.join(args.out_dir, f'state_{step}'))\n"
    )
    assert job["checkpoint"] == {"pattern": "state_*"}


def test_a_key_of_a_config_file_gets_the_folder() -> None:
    source = "import torch, yaml\ncfg = yaml.safe_load(open('conf.yaml'))\n" + LOOP
    source += SAVE % "f\"{cfg['train']['out']}/step_{step}.pt\""
    known = {"train.out": ("conf.yaml", "runs")}
    job, text = written(source, "--config", "conf.yaml", find_key=known.get)
    assert job["knobs"] == {"mode": "zero-edit", "files": {"conf.yaml": {"checkpoint_dir": "train.out"}}}
    assert "Rung sets train.out in a copy of conf.yaml" in text


# Knobs and metrics


def test_batch_and_accumulation_are_knobs_only_where_both_are_options() -> None:
    both = "p.add_argument('--batch-size', type=int, default=64)\np.add_argument('--grad-accum', type=int, default=2)\n"
    job, _ = written(TORCH + OUT + both + ARGS + LOOP, "--batch-size", "32")
    assert job["knobs"] == {"mode": "zero-edit", "batch": 32, "accumulation": 2}
    assert job["run"] == "python train.py --batch-size {batch} --grad-accum {accumulation}"
    job, _ = written(TORCH + OUT + both.splitlines()[0] + "\n" + ARGS + LOOP)
    assert job["knobs"] == {"mode": "zero-edit"}


def test_other_libraries_get_their_knobs_by_flags() -> None:
    source = "import argparse, keras\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=1e-3)\n"
    job, _ = written(source)
    assert job["knobs"] == {"mode": "flags", "lr": 0.001} and job["run"] == "python train.py --lr {lr}"


def test_a_script_that_imports_rung_inside_keeps_its_mode() -> None:
    job, _ = written("import rung_inside, torch\nrun = rung_inside.attach(m, o)\nrun.resume()\nrun.save(3)\n")
    assert job["knobs"] == {"mode": "inside"} and job["checkpoint"] == {"pattern": "step_*.pt"}


def test_a_printed_number_on_held_out_data_is_the_metric() -> None:
    job, text = written(TORCH + "print(f'step {s} loss {a:.3f} val acc {c}')\nprint(f'val_loss={b:.4f}')\n" + LOOP)
    assert job["validation"] == {"metric": "val_loss", "better": "lower"} and "train.py:5 prints val_loss" in text
    job, _ = written(TORCH + "print(f'loss {a} test acc: {c}')\n" + LOOP)
    assert job["validation"] == {"metric": "test_acc", "better": "higher"}
    assert "validation" not in written(TORCH + "print(f'loss {a}')\n" + LOOP)[0]


# Hostile scripts


@pytest.mark.parametrize(
    "name", ["a\\x1b[2Jb", "a\\nrun: evil", "a\\u202eb", "a: b # c", "'\\\"{x}", "x" * 300, "a[b]", ""]
)
def test_whatever_a_script_names_the_file_is_valid_and_holds_no_control_code(name: str) -> None:
    option = f'p.add_argument("--{name}", dest="out", default="runs")\n'
    source = TORCH + OUT + option + ARGS + f'name = "{name}"\n' + LOOP + SAVE % "args.out + '/' + name + '.pt'"
    job, text = written(source)
    assert all(char == "\n" or char.isprintable() for char in text)
    assert set(job) <= {"name", "run", "knobs", "checkpoint"} and job["run"].startswith("python train.py")


def test_names_that_name_each_other_many_times_are_not_followed_for_ever() -> None:
    chain = "".join("a{} = f'{}'\n".format(n, f"{{a{n - 1}}}" * 1000) for n in range(1, 12))
    job, _ = written(TORCH + "a0 = 'x'\n" + chain + LOOP + SAVE % "a11")
    assert job["name"] == "train"
