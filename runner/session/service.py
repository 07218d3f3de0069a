"""Installs the controller as a service of the user's systemd, and removes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rung.jobs.model.errors import ControllerError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.runner.hosts.this_machine import MAX_PARALLEL
from rung.runner.launch.request import INHERITED
from rung.runner.session.background import FILES, PROGRAM, background_environment
from rung.runner.state.home import find_home, make_home, umask_of_jobs
from rung.runner.state.owner import stop_owner

NAME = "rung.service"
SYSTEMCTL_SECONDS = 60.0
INSTEAD = "without a service, `rung launch` starts a controller in the background"
# systemd sets these itself, for every service of a user.
SET_BY_SYSTEMD = frozenset({"HOME", "USER", "LOGNAME", "SHELL"})
UNIT = """\
# Written by `rung controller --install`, which writes it anew.
[Unit]
Description=Rung controller

[Service]
{environment}
ExecStart={command}
Restart=on-failure
RestartSec=5
# Only the controller is stopped: jobs go on, and the next controller finds them.
KillMode=process
OOMPolicy=continue
UMask={umask:04o}

[Install]
WantedBy=default.target
"""


def unit_text(command: Sequence[str], environment: Mapping[str, str], umask: int) -> str:
    """Return the text of the unit. Pure."""
    settings = [f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(environment.items())]
    # A dollar begins a variable in arguments, but not in the name of the program, nor elsewhere in the unit.
    words = [_quoted(command[0]), *(_quoted(word).replace("$", "$$") for word in command[1:])]
    return UNIT.format(environment="\n".join(settings), command=" ".join(words), umask=umask)


def _quoted(text: str) -> str:
    """Return a text as one word of a unit: percent signs begin specifiers there, and quotes end the word."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ControllerError(f"{clean(text)}: a control character cannot be in a unit of systemd; take it out")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def service_environment(environ: Mapping[str, str], paths: HomePaths) -> dict[str, str]:
    """Return what the service has from this shell: the settings of Rung, and what jobs inherit. No secret is in it."""
    known = background_environment(environ, paths)
    settings = ("RUNG_HOME", *FILES, MAX_PARALLEL, "XDG_CONFIG_HOME")
    return {
        name: value
        for name, value in known.items()
        if name in settings or (INHERITED.fullmatch(name) and name not in SET_BY_SYSTEMD)
    }


def unit_path(environ: Mapping[str, str]) -> Path:
    config = environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(config) / "systemd" / "user" / NAME


def install(environ: Mapping[str, str]) -> list[str]:
    """Write the unit, enable and start it; return what to tell. Nothing is written where systemd does not answer."""
    paths, file = find_home(environ), unit_path(environ)
    umask = umask_of_jobs() if umask_of_jobs() >= 0 else 0o022
    text = unit_text([sys.executable, *PROGRAM, "controller"], service_environment(environ, paths), umask)
    _systemctl("show-environment")
    _refuse_other_home(file, paths)
    make_home(paths)
    _write(file, text)
    _systemctl("daemon-reload")
    stopped = stop_owner(paths)
    _systemctl("enable", NAME)
    _systemctl("restart", NAME)
    before = f" in place of controller pid {stopped}" if stopped is not None else ""
    return [
        f"{NAME} runs the controller{before}, and starts again after a restart: {file}",
        "to run it while you are logged out: loginctl enable-linger",
    ]


def uninstall(environ: Mapping[str, str]) -> str:
    """Stop and remove the service; return what to tell."""
    file = unit_path(environ)
    if not file.exists():
        return f"no service is installed: there is no {file}"
    _systemctl("disable", "--now", NAME)
    file.unlink()
    _systemctl("daemon-reload")
    return f"{NAME} is removed; running jobs go on, and the next controller finds them"


def _refuse_other_home(file: Path, paths: HomePaths) -> None:
    """Refuse to take the service from another RUNG_HOME without a word."""
    ours = f"Environment={_quoted(f'RUNG_HOME={paths.home}')}"
    if file.exists() and ours not in file.read_text(encoding="utf-8", errors="replace").splitlines():
        raise ControllerError(
            f"{file}: is the controller of another RUNG_HOME; remove it with `rung controller --uninstall` first"
        )


def _write(file: Path, text: str) -> None:
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.rename(file)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise ControllerError(f"{file}: cannot be written: {error.strerror}") from None


def _systemctl(*words: str) -> None:
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SYSTEMCTL_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise ControllerError(f"systemd does not manage services of yours here: {error}; {INSTEAD}") from None
    if done.returncode:
        said = clean(" ".join(done.stderr.split())) or f"exit code {done.returncode}"
        raise ControllerError(f"`{' '.join(command)}` failed: {said}; {INSTEAD}")
