"""Decides where the checkpoints of a job are: in a folder that a setting gives, or in a fixed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from rung.recovery.doctor.job_draft.path_parts import Parts
from rung.recovery.doctor.job_draft.saves import Save
from rung.recovery.doctor.job_draft.settings import Setting, Style, value_of

OWN_FOLDER = "{checkpoint_dir}"


@dataclass(frozen=True)
class Place:
    """The folder and the names of the checkpoints, and the setting that gives the folder."""

    save: Save | None = None
    pattern: str = ""
    # Empty: the job's own folder.
    folder: str = ""
    setting: Setting | None = None
    # What the setting gets: the folder, or the path of the file in it.
    value: str = OWN_FOLDER
    why: str = ""
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return a command with the folder in it."""
        if self.setting is None or self.setting.style in (Style.VARIABLE, Style.FILE):
            return tuple(argv)
        return self.setting.set_in(argv, self.value)


def place_of(saves: Sequence[Save], argv: Sequence[str], folder: str) -> Place:
    """Return the place of the first save that can be told; `folder` is where the command runs."""
    places = [_place(save, argv, folder) for save in saves]
    return next((each for each in places if each.pattern), places[0] if places else Place())


def _place(save: Save, argv: Sequence[str], folder: str) -> Place:
    found = Place(save)
    if save.is_given:
        note = "The script names no folder (dirpath), so zero-edit lets Lightning write into one of the job's own."
        return replace(found, pattern=save.pattern, notes=(note,))
    if len(save.folder) == 1 and isinstance(save.folder[0], Setting):
        setting = save.folder[0]
        if save.pattern:
            return replace(found, pattern=save.pattern, setting=setting)
        return _file_setting(found, setting, argv)
    fixed = _fixed(save.folder, argv)
    if fixed is None or not save.pattern:
        return _untold(found)
    path = PurePosixPath(folder) / fixed
    note = (
        f"The script always writes to {fixed or 'the folder that it runs in'}: use it for one job at a time. Rung "
        "moves nothing there, and runs no trials. If the script gets an option for it, write that with "
        "{checkpoint_dir} in run, and leave out dir: then each job has its own folder."
    )
    return replace(found, pattern=save.pattern, folder=str(path), notes=(note,))


def _file_setting(found: Place, setting: Setting, argv: Sequence[str]) -> Place:
    """Return the place for a setting that gives the whole path of the file."""
    name = PurePosixPath(str(value_of(setting, argv))).name if isinstance(value_of(setting, argv), str) else ""
    if not name or not name.isprintable() or set(name) & set("{}") or setting.style is Style.FILE:
        why = f"{setting.spelling} gives the whole path, and its value is not known"
        return replace(found, why=why)
    return replace(found, pattern=name, setting=setting, value=f"{OWN_FOLDER}/{name}")


def _fixed(folder: Parts, argv: Sequence[str]) -> str | None:
    """Return the text of a folder that is the same in every run of this command; None: it is not."""
    texts: list[str] = []
    for part in folder:
        value = value_of(part, argv) if isinstance(part, Setting) else part
        if not isinstance(value, (str, int)):
            return None
        texts.append(str(value))
    # ~ is the home of whoever runs it.
    return None if texts and texts[0].startswith("~") else "".join(texts)


def _untold(found: Place) -> Place:
    assert found.save is not None
    why = found.save.why or f"where {found.save.what} in line {found.save.line} writes cannot be told from the code"
    if not found.save.pattern and found.save.why:
        return replace(found, why=why)
    advice = "To let a relaunch go on: let the script write into one folder, and run `rung init` again."
    return replace(found, why=why, advice=(advice,))
