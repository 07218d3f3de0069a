"""A runtime for Docker that gives a container its GPUs without NVIDIA's container toolkit.

    runtime.py SETTINGS [RUNC'S OWN ARGUMENTS]

NVIDIA_VISIBLE_DEVICES lists the GPUs of the container. Before runc creates the container, this writes the devices of
those GPUs and the driver's libraries into its configuration. It uses only the standard library, as it runs with -I.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

NOTHING = {"", "void", "none"}


def main(settings_file: str, *words: str) -> None:
    settings = json.loads(Path(settings_file).read_text())
    if "create" in words:
        file = Path(bundle_of(words)) / "config.json"
        config = json.loads(file.read_text())
        given = wanted(config["process"].get("env") or [])
        if given:
            file.write_text(json.dumps(with_gpus(config, given, settings)))
    os.execv(settings["runc"], [settings["runc"], *words])


def bundle_of(words: tuple[str, ...]) -> str:
    for place, word in enumerate(words):
        if word in ("--bundle", "-b"):
            return words[place + 1]
        if word.startswith("--bundle="):
            return word.partition("=")[2]
    return "."


def wanted(env: list[str]) -> list[str]:
    """Return the GPUs that the engine gave; the engine's variable comes after the image's."""
    said = [word.partition("=")[2] for word in env if word.startswith("NVIDIA_VISIBLE_DEVICES=")]
    return said[-1].split(",") if said and said[-1] not in NOTHING else []


def with_gpus(config: dict[str, Any], given: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    """Return a container's configuration with only these GPUs."""
    paths = [settings["cards"][uuid] for uuid in given if uuid in settings["cards"]]
    if not paths:
        sys.exit(f"rung: no GPU {', '.join(given)} on this machine; it has {', '.join(settings['cards'])}")
    linux = config["linux"]
    for path in [*paths, *settings["control"]]:
        node = device(path)
        linux.setdefault("devices", []).append({"path": path, "fileMode": 0o666, "uid": 0, "gid": 0, **node})
        rules = linux.setdefault("resources", {}).setdefault("devices", [])
        rules.append({"allow": True, "access": "rw", **node})
    mounts = config.setdefault("mounts", [])
    for library in settings["libraries"]:
        inside = f"{settings['folder']}/{Path(library).name}"
        options = ["bind", "ro", "nosuid", "nodev"]
        mounts.append({"destination": inside, "source": os.path.realpath(library), "type": "bind", "options": options})
    return config


def device(path: str) -> dict[str, Any]:
    found = os.stat(path)  # noqa: PTH116 - a device is asked for its numbers
    if not stat.S_ISCHR(found.st_mode):
        sys.exit(f"rung: {path} is no device")
    return {"type": "c", "major": os.major(found.st_rdev), "minor": os.minor(found.st_rdev)}


if __name__ == "__main__":
    main(*sys.argv[1:])
