"""Writes into a draft where the checkpoints are, or that there is nothing to go on from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from rung.jobs.spec.checkpoint_spec import OWN_EVERY, CheckpointSpec
from rung.recovery.doctor.job_draft.asked import Asked, Draft
from rung.recovery.doctor.job_draft.checkpoint_place import Place
from rung.recovery.doctor.job_draft.own_saves import BY_RUNG
from rung.recovery.doctor.job_draft.resume import Resume
from rung.recovery.doctor.job_draft.saves import Save
from rung.recovery.doctor.job_draft.settings import Style

NEVER = "Every relaunch begins again at step 0."
OWN = (
    f"So Rung saves for it every {OWN_EVERY} updates, from inside: the model, the optimizer, the random state and the "
    "place in the data. A relaunch goes on from there. If so many updates are too much to lose, write a smaller number."
)
OWN_LOOP = (
    "A loop over a DataLoader goes on where it was. Any other loop makes all of its steps once more, with the weights "
    "of the checkpoint (docs/checkpoints.md)."
)
OWN_UNREAD = "What it imports was not read: if that saves, write the pattern of its checkpoints instead."


def add_checkpoint(draft: Draft, asked: Asked, place: Place, resume: Resume, saves: Sequence[Save]) -> None:
    """Add the checkpoints of a script, or why a relaunch has none to go on from."""
    value: dict[str, Any] = {**({"dir": place.folder} if place.folder else {}), "pattern": place.pattern}
    if place.save is None or not place.pattern:
        why = place.why or f"{asked.script} saves nothing, as far as is seen; what it imports was not read"
        _add_nothing(draft, why, place.advice)
    elif not _is_valid(value):
        _add_nothing(draft, f"{asked.at(place.save.line)} writes to a name that a job file cannot give", place.advice)
    elif resume.outlook.resumes is False:
        advice = f"Give the command that resumes as run_on_resume, and checkpoint: {{pattern: {place.pattern!r}}}."
        why = (
            f"{asked.at(place.save.line)} saves {place.pattern}, but a relaunch would not load it: {resume.outlook.why}"
        )
        _add_nothing(draft, why, (advice,))
    else:
        notes = [
            f"{asked.at(place.save.line)} {place.save.what} writes the checkpoints.",
            *_one_file(value),
            *place.notes,
        ]
        told = _resume_note(asked, resume)
        draft.add("checkpoint", value, *notes, f"{told[0].upper()}{told[1:]}.")
        _add_file_keys(draft, place, resume)
        where = f"in {place.folder}" if place.folder else "in a folder of the job's own"
        draft.summary.append(f"checkpoints: {place.pattern} {where} ({asked.at(place.save.line)})")
        draft.summary.append(told)
        draft.left += [*_kept(asked, place.save), *_loads_the_newest(place, resume)]
        others = [f"{asked.at(each.line)} {each.what}" for each in saves if each != place.save][:3]
        draft.left += [f"Also saved, and not used to go on from: {'; '.join(others)}."] if others else []


def add_rungs_own(draft: Draft, asked: Asked, place: Place, unread: str) -> None:
    """Let Rung save for a script that does not; `unread`: a call in its loop that may save, and was not read."""
    if unread:
        advice = f"If it saves none, write this, and Rung saves for it: checkpoint: {{by: rung, every: {OWN_EVERY}}}"
        _add_nothing(draft, f"whether {unread} saves checkpoints, and where, is not seen", (advice,))
        return
    why = f"{asked.script} saves nothing while it trains, as far as is seen" + (f" ({place.why})" if place.why else "")
    draft.add("checkpoint", BY_RUNG, f"{why}. {OWN}", OWN_LOOP, OWN_UNREAD)
    draft.summary.append(f"checkpoints: {why}: Rung saves every {OWN_EVERY} updates")
    draft.summary.append("a relaunch resumes: Rung restores what it saved")


def add_inside(draft: Draft, asked: Asked) -> None:
    """Say that rung_inside writes the checkpoints of the script."""
    draft.add(
        "checkpoint", {"pattern": "step_*.pt"}, "rung_inside writes the checkpoints, where the script calls its save()."
    )
    draft.summary.append(f"checkpoints: step_*.pt, which {asked.script} writes by rung_inside")


def _add_nothing(draft: Draft, why: str, advice: Sequence[str]) -> None:
    draft.add("checkpoint", None, f"NO CHECKPOINTS: {why}. {NEVER}", *advice)
    draft.summary.append(f"no checkpoints: {why}")
    draft.summary.append(NEVER.rstrip(".").lower())


def _is_valid(value: dict[str, Any]) -> bool:
    try:
        CheckpointSpec(**value)
    except ValidationError:
        return False
    return True


def _one_file(value: dict[str, Any]) -> list[str]:
    one = CheckpointSpec(**value).is_one_file
    return ["Every save overwrites this one file, so Rung keeps versions of it."] if one else []


def _add_file_keys(draft: Draft, place: Place, resume: Resume) -> None:
    """Add the keys of config files that take the folder of the checkpoints, and the one to go on from."""
    files: dict[str, dict[str, str]] = {}
    for setting, name in ((place.setting, "checkpoint_dir"), (resume.path, "checkpoint")):
        if setting is not None and setting.style is Style.FILE:
            files.setdefault(setting.file, {})[name] = setting.name
            draft.notes["knobs"].append(f"Rung sets {setting.name} in a copy of {setting.file}, to its {{{name}}}.")
    if files:
        draft.fields["knobs"]["files"] = files


def _resume_note(asked: Asked, resume: Resume) -> str:
    if resume.outlook.resumes:
        return f"a relaunch resumes: {resume.outlook.why}"
    if resume.path is not None:
        return f"a relaunch resumes: {asked.at(resume.path.line)} reads the path to load"
    return f"whether a relaunch resumes is not known: {resume.outlook.why}"


def _loads_the_newest(place: Place, resume: Resume) -> list[str]:
    """Warn of a script that chooses a checkpoint by itself, in a folder where Rung does not set spoilt ones aside."""
    by_itself = resume.outlook.resumes and resume.path is None and not resume.is_by_framework
    if not place.folder or "*" not in place.pattern or not by_itself:
        return []
    return [
        f"The script chooses what it loads, and Rung moves nothing in {place.folder}: after a fault it may load a "
        "spoilt one. Give it an option for this folder, or for the checkpoint to load, and run `rung init` again."
    ]


def _kept(asked: Asked, save: Save) -> list[str]:
    if not save.is_whole:
        return [f"{asked.at(save.line)} seems to save weights alone: after a relaunch the optimizer begins anew."]
    if save.keeps is None or save.keeps > 2:
        return []
    keeps = "one checkpoint" if save.keeps == 1 else "two checkpoints"
    more = "keep at least 3 (save_total_limit, save_top_k)"
    return [f"{asked.at(save.line)} keeps {keeps}. If the newest is spoilt, there may be none to go back to: {more}."]
