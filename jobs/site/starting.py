"""Builds the command that starts a job on a node of a site: as a process, or in a container. Pure.

A value of a user is always an argument of its own, and never a part of a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rung.jobs.site.settings import Site, Start
from rung.jobs.site.words import module, mount_path, name, path, variable

# The variables of Slurm that a command in a container sees: its GPUs, and its place among the nodes.
OF_SLURM = (
    *("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_LAUNCH_NODE_IPADDR"),
    *("SLURM_LOCALID", "SLURM_NNODES", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_PROCID", "SLURMD_NODENAME"),
)
TMP = "/tmp"  # noqa: S108
PINNED = re.compile(
    r"((?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?/)?[a-z0-9._/-]+?)(?::[\w.-]+)?@(sha256:[0-9a-f]{64})"
)
# The names of Docker Hub.
HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")
# The container is no child of Podman, so it can outlive it. A signal ends Podman first, and this shell last.
REMOVED = """
_rung_name=$1
shift
trap : TERM
"$@"
_rung_code=$?
podman rm --force --ignore --time=0 "$_rung_name" >/dev/null 2>&1
exit "$_rung_code"
"""
NETWORKS = {"own": "private", "none": "none", "host": "host"}
# Prepares the shell, and then becomes the command. A batch job has no login shell, so `module` is not defined there.
#
#   INIT CONDA VENV N MODULE... M VARIABLE... COMMAND...
#
# It ends with 125, as the wrapper does, where the command cannot be started.
PRELUDE = """
_rung_refuse() { echo "rung: $1 on $(uname -n)"; exit 125; }
# A function has arguments of its own, so that a file that is read here cannot change those of this script.
_rung_read() { . "$1"; }
_rung_init=$1 _rung_conda=$2 _rung_venv=$3 _rung_left=$4
shift 4
if [ "$_rung_left" -gt 0 ]; then
    for _rung_file in "$_rung_init" "${MODULESHOME:-}/init/sh" "${LMOD_PKG:-}/init/sh" \\
        /usr/share/lmod/lmod/init/sh /usr/share/modules/init/sh /usr/share/Modules/init/sh \\
        /etc/profile.d/modules.sh /etc/profile.d/lmod.sh; do
        command -v module >/dev/null && break
        [ ! -f "$_rung_file" ] || _rung_read "$_rung_file"
    done
    command -v module >/dev/null || _rung_refuse "no file defines the command module: name it as module_init"
fi
while [ "$_rung_left" -gt 0 ]; do
    module load "$1" || _rung_refuse "module load $1 failed"
    shift
    _rung_left=$((_rung_left - 1))
done
if [ -n "$_rung_conda" ]; then
    for _rung_file in "${CONDA_EXE:-}" "$(command -v conda)" "${HOME:-}/miniforge3/bin/conda" \\
        "${HOME:-}/miniconda3/bin/conda" "${HOME:-}/anaconda3/bin/conda" /opt/conda/bin/conda; do
        [ ! -x "$_rung_file" ] || break
    done
    [ -x "$_rung_file" ] || _rung_refuse "no conda is found: load a module that has it"
    _rung_said=$("$_rung_file" shell.posix activate "$_rung_conda") || _rung_refuse "conda activate $_rung_conda failed"
    eval "$_rung_said"
fi
if [ -n "$_rung_venv" ]; then
    [ -x "$_rung_venv/bin/python" ] || _rung_refuse "no $_rung_venv/bin/python"
    unset PYTHONHOME
    export VIRTUAL_ENV="$_rung_venv" PATH="$_rung_venv/bin:${PATH:-/usr/local/bin:/usr/bin:/bin}"
fi
_rung_left=$1
shift
# Apptainer takes a variable into a clean environment by this name, and so no value is an argument.
while [ "$_rung_left" -gt 0 ]; do
    eval "[ -z \\"\\${$1+set}\\" ] || export APPTAINERENV_$1=\\"\\$$1\\""
    shift
    _rung_left=$((_rung_left - 1))
done
exec "$@"
"""


@dataclass(frozen=True)
class Mount:
    """A folder of the shared file system, and its path in a container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Command:
    """What is started on the nodes of one batch job."""

    argv: tuple[str, ...]
    # Where it runs: in the container, if there is one.
    cwd: str
    image: str | None = None
    mounts: tuple[Mount, ...] = ()
    # The names of the variables that it sees in a container; their values are in the environment of the batch job.
    variables: tuple[str, ...] = ()
    # A folder for this attempt alone, which is its /tmp in a container.
    scratch: str = ""
    # own, none or host.
    network: str = "own"
    # Shared memory in bytes, where the tool can set it; 0: its default.
    shm: int = 0
    gpus: int = 0
    nodes: int = 1
    # On each node; None: what the site gives.
    cpus: int | None = None
    # The name of the container, where the tool has names.
    name: str = ""


def start_command(site: Site, command: Command) -> list[str]:
    """Return the words that start a command, or raise a ValueError that says why it cannot be started there."""
    if not command.argv or command.argv[0].startswith("-") or any("\0" in word for word in command.argv):
        raise ValueError("the command must begin with the name of a program")
    if why := why_not(site, command.image):
        raise ValueError(f"the site {why}")
    started = _started(site, command)
    if command.nodes == 1 or site.start is Start.PYXIS:
        return started
    return [*_srun(command), *started]


def why_not(site: Site, image: str | None) -> str | None:
    """Return why the site starts no job with this image, or without one; None: it does."""
    if image is None:
        return f"starts jobs in containers (start: {site.start}), so name an image" if site.start.contains else None
    if not site.start.contains:
        return "starts jobs without a container (start: plain), so leave the image out"
    if not PINNED.fullmatch(image) and site.image_file(image) is None:
        return "can pull no image by its id: name it as name@sha256:..., or give its file in images of the site"
    return None


def _started(site: Site, command: Command) -> list[str]:
    if site.start is Start.PLAIN:
        return _prepared(site, command.argv)
    if site.start is Start.APPTAINER:
        # Apptainer sets HOME itself, and refuses another one.
        variables = [each for each in _variables(command) if each != "HOME"]
        return _prepared(site, _apptainer(site, command), variables, always=True)
    return _prepared(site, _pyxis(site, command) if site.start is Start.PYXIS else _podman(site, command))


def _prepared(site: Site, argv: Sequence[str], variables: Sequence[str] = (), *, always: bool = False) -> list[str]:
    """Return a command behind the modules and the Python environment of the site."""
    if not (always or site.modules or site.conda or site.venv):
        return [*argv]
    modules = [module(each) for each in site.modules]
    names = [site.module_init or "", site.conda or "", site.venv or "", str(len(modules)), *modules]
    return ["/bin/sh", "-c", PRELUDE, "rung", *names, str(len(variables)), *variables, *argv]


def _apptainer(site: Site, command: Command) -> list[str]:
    assert command.image is not None
    file = site.image_file(command.image)
    return [
        *("apptainer", "exec", "--containall", "--no-eval"),
        *(["--nv"] if command.gpus else []),
        # Its /tmp and home; by itself they have a few megabytes of memory.
        f"--workdir={mount_path(command.scratch)}",
        *(f"--bind={each}" for each in _mounts(command.mounts)),
        f"--pwd={mount_path(command.cwd)}",
        path(file) if file else f"docker://{_qualified(command.image)}",
        *command.argv,
    ]


def _pyxis(site: Site, command: Command) -> list[str]:
    assert command.image is not None
    file = site.image_file(command.image)
    return [
        *_srun(command),
        f"--container-image={path(file) if file else _for_enroot(command.image)}",
        f"--container-mounts={','.join(_mounts((*command.mounts, Mount(command.scratch, TMP))))}",
        f"--container-workdir={mount_path(command.cwd)}",
        *("--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint"),
        # Without it, a variable of the image would win over the job's.
        f"--container-env={','.join(_variables(command))}",
        *command.argv,
    ]


def _podman(site: Site, command: Command) -> list[str]:
    assert command.image is not None
    file = site.image_file(command.image)
    return [
        *(["/bin/sh", "-c", REMOVED, "rung", name(command.name)] if command.name else []),
        *("podman", "run", "--rm", "--init"),
        *([f"--name={name(command.name)}"] if command.name else []),
        # The user of the job, with no more rights than outside, in the limits that Slurm has set for the job.
        *("--userns=keep-id", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--security-opt=label=disable"),
        *("--read-only", "--cgroups=disabled", "--ulimit=host", "--log-driver=none"),
        f"--network={_network(command)}",
        *(["--device=nvidia.com/gpu=all"] if command.gpus else []),
        *([f"--shm-size={command.shm}b"] if command.shm else []),
        *(f"--volume={each}" for each in _mounts((*command.mounts, Mount(command.scratch, TMP)))),
        f"--workdir={mount_path(command.cwd)}",
        # A name without a value: the value comes from the environment, and is no argument.
        *(f"--env={each}" for each in _variables(command)),
        # The entry point of the image is not used.
        f"--entrypoint={json.dumps([command.argv[0]])}",
        f"docker-archive:{path(file)}" if file else _qualified(command.image),
        *command.argv[1:],
    ]


def _network(command: Command) -> str:
    """Return the network of a Podman container. Processes on several nodes reach each other only in the nodes' own."""
    return "host" if command.nodes > 1 and command.network == "own" else NETWORKS[command.network]


def _mounts(mounts: Sequence[Mount]) -> list[str]:
    """Return mounts as all three tools write them."""
    ends = {True: ":ro", False: ""}
    return [f"{mount_path(each.source)}:{mount_path(each.target)}{ends[each.read_only]}" for each in mounts]


def _srun(command: Command) -> list[str]:
    """Return the command that starts one process on each node, and ends all of them when one fails."""
    # From Slurm 22.05 on, a step does not inherit the CPUs of its job.
    cpus = [] if command.cpus is None else [f"--cpus-per-task={command.cpus}"]
    count = [f"--nodes={command.nodes}", f"--ntasks={command.nodes}", "--ntasks-per-node=1"]
    return ["srun", "--export=ALL", *count, *cpus, "--kill-on-bad-exit=1"]


def _variables(command: Command) -> list[str]:
    return [variable(each) for each in dict.fromkeys((*command.variables, *OF_SLURM))]


def _parts(image: str) -> tuple[str, str, str]:
    """Return registry, name and digest of a pinned image, without its tag."""
    match = PINNED.fullmatch(image)
    assert match is not None, "checked before"
    first, slash, rest = match[1].partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first) and first not in HUB:
        return first, rest, match[2]
    hub = rest if first in HUB else match[1]
    return HUB[0], hub if "/" in hub else f"library/{hub}", match[2]


def _qualified(image: str) -> str:
    registry, repository, digest = _parts(image)
    return f"{registry}/{repository}@{digest}"


def _for_enroot(image: str) -> str:
    """Return the name of an image for Enroot. It takes a digest in place of a tag; not all versions take an @."""
    registry, repository, digest = _parts(image)
    return f"{repository}:{digest}" if registry == HUB[0] else f"{registry}#{repository}:{digest}"
