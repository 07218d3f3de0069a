"""Checks the words that become options of Slurm or arguments of a container tool.

Every value is one word of plain characters, which no program can read as two, or as another option. Each function
returns the word, or raises a ValueError with what is wrong.
"""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,127}")
# A mark or a name of Rung's own, such as rung/STORE/JOB/ATTEMPT.
MARK = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/=@+-]{0,500}")
MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/-]{0,200}")
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
PLAIN_PATH = re.compile(r"/[A-Za-z0-9_.+@=/-]{1,1000}")
# A path of a mount may have other letters too, but nothing that Apptainer, Pyxis or Podman reads as a separator.
NOT_MOUNTED = re.compile(r"[\s:,\"'\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")
OPTION = re.compile(r"--([a-z][a-z0-9-]{1,40})(?:=([!-~]{1,300}))?")

# What Rung itself sets, and what would make another job of it: another script, user, cluster or output.
OWN_OPTIONS = frozenset(
    {
        *("account", "array", "batch", "chdir", "clusters", "comment", "cpus-per-gpu", "cpus-per-task", "error"),
        *("exclude", "export", "export-file", "get-user-env", "gid", "gpus", "gpus-per-node", "gpus-per-socket"),
        *("gpus-per-task", "gres", "help", "ignore-pbs", "input", "job-name", "jobid", "mem", "no-requeue", "nodes"),
        *("ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode"),
        *("output", "parsable", "partition", "qos", "requeue", "signal", "test-only", "time", "uid", "usage"),
        *("version", "wait", "wrap"),
    }
)
# What a job file may add. It may come from somebody else, so only options that choose nodes or times are here: none
# that names a file or starts a program.
JOB_OPTIONS = frozenset(
    {
        *("begin", "constraint", "contiguous", "core-spec", "cores-per-socket", "cpu-freq", "deadline", "delay-boot"),
        *("distribution", "exclusive", "gpu-freq", "gres-flags", "hint", "licenses", "mail-type", "mail-user"),
        *("mcs-label", "mem-per-cpu", "mem-per-gpu", "mincpus", "nice", "oversubscribe", "prefer", "reservation"),
        *("sockets-per-node", "spread-job", "switches", "thread-spec", "threads-per-core", "time-min", "tmp"),
        *("use-min-nodes", "wckey"),
    }
)


def name(text: object) -> str:
    return _whole(NAME, text, "should be one plain name, in quotes if it is a number")


def names(text: object) -> str:
    """Check one name, or several with commas: Slurm takes the first partition that can start the job."""
    if isinstance(text, str) and text and all(NAME.fullmatch(part) for part in text.split(",")):
        return text
    raise ValueError("should be one plain name, or several with commas and without blanks")


def mark(text: object) -> str:
    return _whole(MARK, text, "should be one plain word")


def module(text: object) -> str:
    return _whole(MODULE, text, "should be the name of a module, such as cuda/12.4")


def path(text: object) -> str:
    found = _whole(PLAIN_PATH, text, "should be a path that begins with /, without blanks or special characters")
    if ".." in found.split("/"):
        raise ValueError("should be a path without ..")
    return found


def mount_path(text: str) -> str:
    """Check a path that is mounted in a container."""
    if not text.startswith("/") or NOT_MOUNTED.search(text) or ".." in text.split("/"):
        raise ValueError(f"{text!r} cannot be mounted: no blanks, quotes, commas, colons or .. in a path there")
    return text


def variable(text: str) -> str:
    return _whole(VARIABLE, text, "is no name of a variable")


def site_option(text: object) -> str:
    """Check a further option of sbatch in the list of hosts, which the user writes."""
    given = _option_name(text)
    # Programs accept a beginning for the whole name: --wra is --wrap.
    own = next((each for each in sorted(OWN_OPTIONS) if each.startswith(given)), None)
    if own is not None:
        raise ValueError(f"--{given}: Rung sets --{own} itself; leave it out, or use the setting for it")
    return str(text)


def job_option(text: object) -> str:
    """Check a further option of sbatch in a job file, which somebody else may have written."""
    given = _option_name(text)
    if given not in JOB_OPTIONS:
        known = ", ".join(f"--{each}" for each in sorted(JOB_OPTIONS))
        raise ValueError(f"--{given}: a job file may not set this one; it may set {known}")
    return str(text)


def option_name(word: str) -> str:
    """Return the name in an option such as --constraint=ib."""
    return word.removeprefix("--").partition("=")[0]


def is_node(text: str) -> bool:
    return NODE.fullmatch(text) is not None


def _option_name(text: object) -> str:
    match = OPTION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("should be one word such as --constraint=infiniband, without blanks")
    return match[1]


def _whole(pattern: re.Pattern[str], text: object, problem: str) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(problem)
    return text
