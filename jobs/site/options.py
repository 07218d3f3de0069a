"""Builds the options of sbatch for one attempt, with pure functions.

Every option is one word, `--name=value`, and every value is checked once more here: no value can become another option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rung.jobs.site.settings import Asked, GpuOption, Site
from rung.jobs.site.times import minutes
from rung.jobs.site.words import is_node, job_option, mark, name, names, option_name, site_option

# The batch script alone gets it, and tells the command.
WARNING = "USR2"
NO_VARIABLES = "/dev/null"
# In the name of an output file, Slurm reads a backslash as "replace nothing".
NOT_IN_A_FILE = re.compile(r"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Submission:
    """What Rung itself says about a batch job: how it is found again, and where it writes and runs."""

    name: str
    mark: str
    log: str
    folder: str
    # The file on the login node with all variables of the batch job: NAME=value, each ended by a NUL byte.
    variables: str = NO_VARIABLES
    # Nodes where the job must not run.
    avoid: tuple[str, ...] = ()


def sbatch_options(site: Site, asked: Asked, submission: Submission) -> list[str]:
    """Return all options of sbatch, without the script, or raise a ValueError for a value that is none."""
    return [*own_options(site, asked, submission), *chosen_options(site, asked)]


def own_options(site: Site, asked: Asked, submission: Submission) -> list[str]:
    """Return the options by which Rung keeps hold of the batch job."""
    nodes = sorted({each for each in submission.avoid if is_node(each)})
    return [
        "--parsable",
        # Rung itself decides about the next attempt.
        "--no-requeue",
        f"--job-name={name(submission.name)}",
        f"--comment={mark(submission.mark)}",
        f"--output={_file(submission.log).replace('%', '%%')}",
        "--open-mode=append",
        f"--chdir={_file(submission.folder)}",
        # With --export, also of NONE or NIL, Slurm 22.05 adds what a login on the node sets.
        f"--export-file={_file(submission.variables)}",
        *_warning(site, asked),
        *([f"--exclude={','.join(nodes)}"] if nodes else []),
    ]


def chosen_options(site: Site, asked: Asked) -> list[str]:
    """Return the options that come from the settings of the site and from the job file."""
    time, memory, cpus = asked.time_at(site), asked.memory or site.memory, asked.cpus_at(site)
    given = {
        "partition": _checked(names, asked.partition or site.partition),
        "account": _checked(name, asked.account or site.account),
        "qos": _checked(name, asked.qos or site.qos),
        "time": None if time is None else minutes(time),
        "nodes": asked.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": cpus,
        "mem": None if memory is None else f"{-(-memory // (1 << 20))}M",
    }
    options = [f"--{key}={value}" for key, value in given.items() if value is not None]
    return [*options, *_gpus(site, asked), *_further(site, asked, has_memory=memory is not None)]


def _checked(check: Callable[[object], str], value: str | None) -> str | None:
    return None if value is None else check(value)


def _warning(site: Site, asked: Asked) -> list[str]:
    """Return the signal before the limit; of a short limit, half of it is left to work in."""
    time = asked.time_at(site)
    seconds = site.warn if time is None else min(site.warn, time // 2)
    return [f"--signal=B:{WARNING}@{seconds}"] if seconds else []


def _gpus(site: Site, asked: Asked) -> list[str]:
    if not asked.gpus:
        return []
    kind = site.gpu_name(asked.gpu) if asked.gpu else ""
    amount = f"{name(kind)}:{asked.gpus}" if kind else f"{asked.gpus}"
    return [f"--gpus-per-node={amount}" if site.gpu_option is GpuOption.GPUS else f"--gres=gpu:{amount}"]


def _further(site: Site, asked: Asked, *, has_memory: bool) -> Iterator[str]:
    """Yield the options of the site, less those that the job file sets otherwise, and those of the job file."""
    replaced = {option_name(word) for word in asked.options}
    kept = [site_option(word) for word in site.options if option_name(word) not in replaced]
    for word in [*kept, *map(job_option, asked.options)]:
        # Slurm takes only one of the options for memory.
        if not (has_memory and option_name(word).startswith("mem-per-")):
            yield word


def _file(path: str) -> str:
    if not path.startswith("/") or NOT_IN_A_FILE.search(path):
        raise ValueError(f"{path!r} is no path that Slurm can write to")
    return path
