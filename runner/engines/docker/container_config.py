"""Builds the configuration of a container from a request, with pure functions.

The dry run prints exactly what the engine is given. The safety settings are the same for every job: no root, no
capability, no way to gain one, a read-only root filesystem, no engine socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rung.jobs.model.paths import IN_FILES, IN_INSIDE, IN_JOB, IN_RECORD, IN_SECRETS, IN_WORK
from rung.jobs.spec.volume import host_path
from rung.runner.engines.docker.empty_image import EMPTY_IMAGE, PROGRAMS_PATH
from rung.runner.engines.on_host.layout import HostLayout, RemoteUser, wanted_of
from rung.runner.hosts.engine_facts import JOB_LABEL
from rung.runner.seams.engine import Request

STORE_LABEL, ATTEMPT_LABEL = "rung.store", "rung.attempt"
# On a probe container, instead of the job's label.
PROBE_LABEL = "rung.look"
WRAPPER = ("/bin/sh", f"{IN_INSIDE}/contained.sh")
# Programs may run in /tmp: compilers of kernels put them there. It belongs to the user, whatever the image says.
TMP = "rw,nosuid,nodev,exec,mode=1777,size=2147483648,uid={uid},gid={gid}"
# What a job without a limit leaves to the host: 2 GiB, on a small host an eighth.
RESERVE, RESERVED_SHARE = 2 << 30, 8
# At most half a gigabyte of log on the host's disk; the controller has its own copy of all of it.
LOG = {"Type": "json-file", "Config": {"max-size": "128m", "max-file": "4"}}


def default_memory(host_memory: int | str) -> int | str:
    """Return the limit of a job that names none: what the host has, less a reserve, so that the host survives it."""
    if isinstance(host_memory, str):
        return f"{host_memory} - RESERVE"
    return host_memory - min(RESERVE, host_memory // RESERVED_SHARE)


def container_name(store_id: str, job_id: str, attempt: int) -> str:
    return f"rung-{store_id}-{job_id}-{attempt}"


def labels(store_id: str, job_id: str, attempt: int) -> dict[str, str]:
    return {STORE_LABEL: store_id, JOB_LABEL: job_id, ATTEMPT_LABEL: str(attempt)}


def secrets_folder(store_id: str, job_id: str, attempt: int) -> str:
    """Return the folder for the secrets of an attempt, on the tmpfs of every Linux."""
    return f"/dev/shm/{container_name(store_id, job_id, attempt)}"  # noqa: S108


def container_config(request: Request, layout: HostLayout) -> dict[str, Any]:
    """Return the configuration of the container of an attempt. Pure."""
    wanted = wanted_of(request)
    paths = layout.paths
    mounts = [
        _bind(paths.work(request.job_id, request.attempt), IN_WORK),
        _bind(paths.job(request.job_id, wanted.residence), IN_JOB),
        _bind(paths.record(request.job_id, request.attempt, request.paths.node), IN_RECORD),
        _bind(layout.inside, IN_INSIDE, read_only=True),
        *(_bind(volume.host, volume.container, read_only=volume.read_only) for volume in wanted.volumes),
    ]
    if request.secrets:
        mounts.append(_bind(secrets_folder(layout.store_id, request.job_id, request.attempt), IN_SECRETS))
    # A network of its own has the name of the container.
    own = container_name(layout.store_id, request.job_id, request.attempt)
    network = own if wanted.network == "own" else wanted.network
    config = _common_config(request, layout, {"Mounts": mounts, "NetworkMode": network})
    config["HostConfig"]["DeviceRequests"] = _devices(wanted.gpus)
    return {
        **config,
        "Entrypoint": list(WRAPPER),
        "Cmd": list(request.argv),
        "WorkingDir": str(request.cwd),
        "Labels": labels(layout.store_id, request.job_id, request.attempt),
    }


def planned_config(request: Request) -> dict[str, Any]:
    """Return the configuration for a host that is not known yet, with placeholders for its facts. Pure."""
    layout = HostLayout(RemoteUser("~", "UID", "GID", "HOST MEMORY"), "STORE", "")
    inside = f"{layout.paths.trees}/ID/files"
    return container_config(request, HostLayout(layout.user, layout.store_id, inside))


def probe_config(request: Request, layout: HostLayout, argv: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration of a probe container: it reads the files of an attempt in its own image. Pure."""
    job = _bind(layout.paths.job(request.job_id, wanted_of(request).residence), IN_JOB, read_only=True)
    volumes = [_bind(each.host, each.container, read_only=True) for each in wanted_of(request).volumes]
    mounts = [job, *_files_mounts(request, layout, writable=False), *volumes]
    config = _throw_away_config(request, layout, argv, mounts)
    path = ":".join(filter(None, [IN_INSIDE, request.env.get("PYTHONPATH")]))
    return {**config, "Env": [*config["Env"], f"PYTHONPATH={path}"]}


def files_config(
    request: Request, layout: HostLayout, argv: tuple[str, ...], *, writable: bool = False
) -> dict[str, Any]:
    """Return the configuration of a container that works on the files of one job alone. Pure.

    What runs in it comes from the host: the image and the variables of the job may be hostile, and it may write where
    the job itself cannot.
    """
    programs = [_bind(folder, folder, read_only=True) for folder in layout.user.program_folders]
    kept = host_path(str(request.checkpoint_dir), wanted_of(request).volumes)
    volume = [_bind(kept[1].host, kept[1].container, read_only=not writable)] if kept else []
    mounts = [*programs, *_files_mounts(request, layout, writable=writable), *volume]
    config = _throw_away_config(request, layout, argv, mounts)
    return {**config, "Image": EMPTY_IMAGE, "Env": _environment({"PATH": PROGRAMS_PATH}, ())}


def _files_mounts(request: Request, layout: HostLayout, *, writable: bool) -> list[dict[str, Any]]:
    return [
        _bind(layout.paths.job_root(request.job_id), IN_FILES, read_only=not writable),
        _bind(layout.inside, IN_INSIDE, read_only=True),
    ]


def _throw_away_config(
    request: Request, layout: HostLayout, argv: tuple[str, ...], mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        **_common_config(request, layout, {"Mounts": mounts, "NetworkMode": "none"}),
        "Entrypoint": [argv[0]],
        "Cmd": list(argv[1:]),
        "WorkingDir": "/",
        "Labels": {STORE_LABEL: layout.store_id, PROBE_LABEL: request.job_id},
    }


def _common_config(request: Request, layout: HostLayout, host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part that is the same for all our containers."""
    wanted = wanted_of(request)
    memory = request.limits.get("memory") or default_memory(layout.user.host_memory)
    return {
        "Image": wanted.image,
        "User": f"{layout.user.uid}:{layout.user.gid}",
        "Env": _environment(request.env, wanted.gpus),
        "Tty": False,
        "OpenStdin": False,
        # The one of the image would run beside the job.
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "RestartPolicy": {"Name": "no"},
            "Privileged": False,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "IpcMode": "private",
            "Tmpfs": {"/tmp": TMP.format(uid=layout.user.uid, gid=layout.user.gid)},  # noqa: S108
            "ShmSize": wanted.shm,
            "PidsLimit": wanted.pids,
            "Memory": memory,
            # Equal to memory: no swap, which would make a training crawl instead of fail.
            "MemorySwap": memory,
            "NanoCpus": request.limits.get("cpus", 0) * 10**9,
            "LogConfig": LOG,
            **host,
        },
    }


def _environment(env: Mapping[str, str], gpus: tuple[str, ...]) -> list[str]:
    """Return the variables in the engine's form. Only the engine assigns GPUs: no variable may add any."""
    kept = {name: value for name, value in env.items() if name != "NVIDIA_VISIBLE_DEVICES"}
    if not gpus:
        # Where NVIDIA's runtime is the engine's default, many images would get every GPU.
        kept["NVIDIA_VISIBLE_DEVICES"] = "void"
    return [f"{name}={value}" for name, value in sorted(kept.items())]


def _devices(gpus: tuple[str, ...]) -> list[dict[str, Any]]:
    if not gpus:
        return []
    return [{"Driver": "", "Count": 0, "DeviceIDs": list(gpus), "Capabilities": [["gpu"]], "Options": {}}]


def _bind(source: str, target: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
