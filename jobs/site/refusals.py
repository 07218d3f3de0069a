"""Reads why a cluster does not take a job: whether it never will, and then what a person can do about it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# What Slurm says, in any case of letters, about a request that it will never take, and what to do. The first row that
# is found counts. The words are those of Slurm's own table of errors.
NEVER = (
    ("invalid partition", "name a partition of the cluster (`sinfo` lists them) in slurm.partition, or at the site"),
    ("group not permitted to use this partition", "name a partition that your account may use in slurm.partition"),
    ("invalid account", "name an account of yours (`sacctmgr show assoc user=$USER`) in slurm.account, or at the site"),
    ("invalid qos", "name a QOS that your account may use in slurm.qos, or at the site"),
    ("invalid generic resource", "ask for GPUs as the cluster names them (gpu_option and gpu_names of the site)"),
    ("invalid trackable resource", "ask for GPUs as the cluster names them (gpu_option and gpu_names of the site)"),
    ("invalid feature", "take a --constraint that no node has out of slurm.options, or out of options of the site"),
    ("reservation is invalid", "take --reservation out of slurm.options, or name one that you may use"),
    ("invalid license", "take --licenses out of slurm.options, or name those of the cluster"),
    ("invalid wckey", "take --wckey out of slurm.options, or name one of yours"),
    ("time limit is invalid", "ask for a time within the limit of the partition in resources.time"),
    ("node count specification invalid", "ask for as many nodes as the partition allows in resources.nodes"),
    ("unrecognized option", "take the option out of slurm.options, or out of options of the site"),
)
# Said about nodes that do not exist, and also where those that we exclude are the only ones.
UNAVAILABLE = ("memory specification can not be satisfied", "node configuration is not available")
LESS = "ask for GPUs, memory and CPUs that a node of the cluster has (`sinfo -N -o '%N %P %G %c %m'` lists them)"
# A limit of a QOS or of an account that one job alone exceeds, such as QOSMaxGRESPerJob or AssocMaxWallDurationPerJob.
PER_JOB = re.compile(r"\b(?:QOS|Assoc|Association)(?:Grp|Max|Min)\w{1,40}PerJob(?:Limit)?\b", re.IGNORECASE)
SMALLER = "ask for less: one job alone is beyond what your account or QOS may have"
# Why a batch job waits, where it would wait for ever: it was accepted all the same.
WAITS_FOR_EVER = {
    "PartitionTimeLimit": "ask for a time within the limit of the partition in resources.time",
    "AccountNotAllowed": "name an account that may use the partition in slurm.account",
    "QOSNotAllowed": "name a QOS that may use the partition in slurm.qos",
    "InvalidAccount": "name an account of yours in slurm.account",
    "InvalidQOS": "name a QOS that your account may use in slurm.qos",
}


@dataclass(frozen=True)
class Refusal:
    """Why a cluster will never take a job, in its own words, and what a person can do."""

    words: str
    advice: str

    @property
    def text(self) -> str:
        return f"{self.words}; another try would say the same, so {self.advice}"


def read_refusal(said: str, shown: str, *, excluding: bool) -> Refusal | None:
    """Return the refusal that sbatch means; None: it may take the same job later, or on other nodes.

    `shown` is the line of it to be shown. `excluding`: nodes were excluded, which may be the ones that are asked for.
    """
    lower = said.lower()
    advice = next((advice for words, advice in NEVER if words in lower), None)
    if advice is None and not excluding and any(words in lower for words in UNAVAILABLE):
        advice = LESS
    if advice is None and PER_JOB.search(said):
        advice = SMALLER
    return Refusal(shown, advice) if advice else None


def waits_for_ever(reason: str, partition: str) -> str | None:
    """Return what to do about a batch job that waits for this reason; None: it may start later."""
    # Of several partitions the reason is that of one, and another may take the job.
    if "," in partition:
        return None
    return WAITS_FOR_EVER.get(reason) or (SMALLER if PER_JOB.fullmatch(reason) else None)
