"""Drafts a job file for a script from what its code shows. The script is never run."""

from __future__ import annotations

import ast

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.job_draft.asked import Asked, Draft
from rung.recovery.doctor.job_draft.checkpoint_place import OWN_FOLDER, Place, place_of
from rung.recovery.doctor.job_draft.checkpoints import add_checkpoint, add_inside, add_rungs_own
from rung.recovery.doctor.job_draft.knobs import add_knobs, imports_inside
from rung.recovery.doctor.job_draft.metrics import find_metric
from rung.recovery.doctor.job_draft.own_saves import can_rung_save, unread_save
from rung.recovery.doctor.job_draft.path_parts import PathReader
from rung.recovery.doctor.job_draft.resume import CHECKPOINT, Resume, find_resume
from rung.recovery.doctor.job_draft.saves import find_saves
from rung.recovery.doctor.job_draft.settings import Style, hydra_config, settings_of

IN_COMMAND = (Style.FLAG, Style.ASSIGNED, Style.OVERRIDE)


def draft_job(script: Script, asked: Asked) -> Draft:
    """Return the draft of a job file for a script."""
    settings = settings_of(script)
    paths = PathReader(script, settings, hydra_config(script), asked.find_key)
    argv = (*asked.launcher, asked.script, *asked.arguments)
    saves = find_saves(script, paths, argv)
    place = place_of(saves, argv, asked.folder)
    resume = find_resume(paths, place.command(argv), [place.setting] if place.setting is not None else [])
    if not place.pattern:
        resume = Resume(resume.outlook)  # without a checkpoint there is nothing to give to the script
    draft = Draft()
    draft.add("name", asked.name)
    _add_command(draft, asked, place, resume)
    if _needs_ranks(script):
        how = "For one rank on each GPU write `gpus`, and resources: {gpu: 4}."
        draft.add("ranks", 1, f"It reads LOCAL_RANK, so torchrun starts it. {how}")
    add_knobs(draft, script, asked, settings)
    if imports_inside(script) and not place.pattern:
        add_inside(draft, asked)
    elif can_rung_save(script, saves):
        add_rungs_own(draft, asked, place, unread_save(script))
    else:
        add_checkpoint(draft, asked, place, resume, saves)
    _add_metric(draft, script, asked)
    _add_what_is_left(draft, script, asked)
    return draft


def _add_command(draft: Draft, asked: Asked, place: Place, resume: Resume) -> None:
    """Add the command, with the settings that give it the folder and the checkpoint."""
    where = "this folder" if asked.workdir == "." else asked.workdir
    notes = [f"The command, as you would type it in {where}; no shell reads it."]
    words = place.command((*asked.launcher, *map(_plain, (asked.script, *asked.arguments))))
    if place.setting is not None and place.setting.style in IN_COMMAND:
        given = place.setting.given(asked.arguments)
        instead = f" instead of {given}; `rung pull` fetches what is written there" if given else ""
        what = f"{'' if place.value == OWN_FOLDER else 'a file in '}a folder of the job's own{instead}"
        notes.append(f"{asked.at(place.setting.line)} takes {place.setting.spelling}: {what}.")
    taken = resume.path
    if taken is not None and taken.style in IN_COMMAND:
        words = taken.set_in(words, CHECKPOINT)
        what = "the checkpoint to go on from. Where there is none yet, Rung leaves this option out"
        notes.append(f"{asked.at(taken.line)} takes {taken.spelling}: {what}.")
    draft.add("run", words, *notes)
    if resume.further:
        draft.add("run_on_resume", words, f"The command of a relaunch: {resume.outlook.why}.")
        for setting, value in resume.further:
            draft.fields["run_on_resume"] = setting.set_in(draft.fields["run_on_resume"], _plain(value))
    if asked.workdir != ".":
        draft.add("workdir", asked.workdir, "Where the command runs, seen from this file.")
    variables = {
        each: text
        for each, text in ((place.setting, "{checkpoint_dir}"), (taken, CHECKPOINT))
        if each is not None and each.style is Style.VARIABLE
    }
    if variables:
        read = [f"{asked.at(each.line)} reads {each.spelling} from the environment." for each in variables]
        draft.add("envs", {each.spelling: text for each, text in variables.items()}, *read)


def _needs_ranks(script: Script) -> bool:
    """Return whether the script reads LOCAL_RANK without a default, which only a launcher of ranks sets."""
    return any(
        isinstance(node, ast.Subscript)
        and script.names.full(node.value) == "os.environ"
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == "LOCAL_RANK"
        for node in script.nodes
    )


def _add_metric(draft: Draft, script: Script, asked: Asked) -> None:
    metric = find_metric(script)
    if metric is None:
        draft.left.append(
            "No number on held-out data is seen that the script prints by name, so exit code 0 is a success. If it "
            "prints one, write: success: {metric: val_loss, below: 2.0}"
        )
        return
    bound = "below: 2.0" if metric.better == "lower" else "above: 0.9"
    draft.add(
        "validation",
        {"metric": metric.name, "better": metric.better},
        f"{asked.at(metric.line)} prints {metric.name}; `rung validate` compares FP16 with FP32 by it.",
    )
    draft.left.append(
        f"Exit code 0 is a success. If {metric.name} must also reach a value, write yours: "
        f"success: {{metric: {metric.name}, {bound}}}"
    )


def _add_what_is_left(draft: Draft, script: Script, asked: Asked) -> None:
    local = sorted(each for each in script.names.modules if each.startswith("."))
    if local:
        draft.left.append(f"Files that {asked.script} imports were not read: {', '.join(local[:5])}.")
    if script.uses_torch:
        draft.left.append(
            "Without a request the job sees every GPU of this machine. For one of its own, write: "
            "resources: {gpu: {count: 1}}"
        )
    draft.left.append("It runs on this machine, as you. For a container on a host, see docs/job-file.md.")


def _plain(word: str) -> str:
    """Return a word in which braces are no placeholders."""
    return word.replace("{", "{{").replace("}", "}}")
