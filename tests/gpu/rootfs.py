"""Makes the image for jobs on this machine from its own shell and Python, without a download.

torch and the other installed packages take many gigabytes; jobs get them as read-only volumes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.patience import FleetError, run
from tests.gpu.account import Account
from tests.gpu.engine import MachineEngine
from tests.gpu.libraries import mapped, names_of, needed_by

# For the wrapper of an attempt, and for a person who looks into the container.
SHELL = ("sh", "bash", "cat", "mv", "rm", "date", "mkdir", "ls", "env", "id", "sleep", "grep", "head", "uname")
LEFT_OUT = (
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "dist-packages",
)
MERGED = ("bin", "sbin", "lib", "lib64")
# The Python of the jobs runs this; the image needs the files that it loads.
ASK = """
import json, sys, sysconfig
import torch
if torch.cuda.is_available():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 8)).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(torch.randn(4, 3, 8, 8, device="cuda")).float().pow(2).mean()
    torch.amp.GradScaler("cuda").scale(loss).backward()
base = getattr(sys, "_base_executable", sys.executable)
print("found:" + json.dumps({
    "executable": base, "stdlib": sysconfig.get_path("stdlib"), "path": [entry for entry in sys.path if entry],
    "torch": torch.__version__, "archs": getattr(torch._C, "_cuda_getArchFlags", str)() or "",
    "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "", "maps": open("/proc/self/maps").read(),
}))
"""


@dataclass(frozen=True)
class MachinePython:
    """The Python of this machine that has torch, and all it needs."""

    executable: Path
    stdlib: Path
    sites: tuple[Path, ...]
    libraries: frozenset[Path]
    torch: str
    archs: str
    gpu: str

    @property
    def volumes(self) -> list[str]:
        return [f"{site}:/opt/site/{place}:ro" for place, site in enumerate(self.sites)]

    @property
    def envs(self) -> dict[str, str]:
        return {"PYTHONPATH": ":".join(f"/opt/site/{place}" for place in range(len(self.sites)))}


def ask_python(python: str = sys.executable) -> MachinePython:
    """Return the paths that the machine's Python loads when it uses torch, on the GPU if there is one."""
    done = subprocess.run([python, "-E", "-c", ASK], capture_output=True, text=True, cwd="/", check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("found:")), "")
    if not line:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise FleetError(f"{python} cannot use torch ({last}): give one that can, with PYTHON=...")
    found = json.loads(line.removeprefix("found:"))
    stdlib = Path(found["stdlib"]).resolve()
    entries = [Path(entry).resolve() for entry in found["path"]]
    sites = [path for path in entries if path.is_dir() and path.name in ("site-packages", "dist-packages")]
    libraries = {path for path in mapped(found["maps"]) if not path.is_relative_to(stdlib)}
    libraries = {path for path in libraries if not any(path.is_relative_to(site) for site in sites)}
    return MachinePython(
        Path(found["executable"]).resolve(),
        stdlib,
        tuple(dict.fromkeys(sites)),
        frozenset(path for path in libraries if not path.name.startswith(("libcuda.", "libnvidia-"))),
        *(found[name] for name in ("torch", "archs", "gpu")),
    )


def make_image(engine: MachineEngine, python: MachinePython, account: Account, folder: Path) -> str:
    """Put the image together, give it to the engine, and return its id."""
    shutil.rmtree(folder, ignore_errors=True)
    fill(folder, python)
    # Some libraries look up the name of the current user.
    (folder / "etc" / "passwd").write_text(f"{account.name}:x:{account.uid}:{account.uid}::/tmp:/bin/sh\n")
    tar = folder.with_suffix(".tar")
    run("tar", "--directory", folder, "--owner=0", "--group=0", "-cf", tar, ".")
    changes = ["ENV PATH=/usr/bin:/bin", "ENV PYTHONUNBUFFERED=1", f'LABEL rung.torch="{python.torch}"']
    if python.archs:
        changes.append(f'LABEL rung.cuda.archs="{python.archs}"')
    client = engine.client()
    said = client.import_image(src=str(tar), repository="rung/machine", tag="own", changes=changes)
    tar.unlink()
    shutil.rmtree(folder)
    if "sha256:" not in str(said):
        raise FleetError(f"the engine did not take the image: {said}")
    return str(client.inspect_image("rung/machine:own")["Id"])


def fill(folder: Path, python: MachinePython) -> None:
    for name in ("etc", "tmp", "opt/site", "proc", "sys", "dev", "usr/bin", "rung"):
        (folder / name).mkdir(parents=True)
    # Folders that are links into /usr on a machine with a merged /usr.
    for name in MERGED:
        real = Path(f"/{name}")
        if real.is_symlink():
            (folder / name).symlink_to(real.readlink())
            (folder / real.resolve().relative_to("/")).mkdir(parents=True, exist_ok=True)
    programs = [Path(found) for name in SHELL if (found := shutil.which(name))]
    for program in programs:
        put(folder, program.resolve(), program.parent.resolve() / program.name)
    put(folder, python.executable)
    for name in ("python", "python3"):
        place(folder, Path("/usr/bin") / name).symlink_to(python.executable)
    copy_stdlib(python.stdlib, place(folder, python.stdlib))
    modules = list((python.stdlib / "lib-dynload").glob("*.so"))
    for library in needed_by([*programs, python.executable, *modules]) | set(python.libraries):
        if not library.is_relative_to(python.stdlib):
            put(folder, library.resolve(), *names_of(library))
    interpreter = Path("/lib64/ld-linux-x86-64.so.2")
    if interpreter.exists() and not place(folder, interpreter.parent.resolve() / interpreter.name).exists():
        put(folder, interpreter.resolve(), interpreter.parent.resolve() / interpreter.name)


def copy_stdlib(stdlib: Path, to: Path) -> None:
    shutil.copytree(stdlib, to, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*LEFT_OUT, "config-*"))


def place(folder: Path, path: Path) -> Path:
    """Return the path in the image's folder for a path of the machine; make its parent folder."""
    there = folder / path.relative_to("/")
    there.parent.mkdir(parents=True, exist_ok=True)
    return there


def put(folder: Path, real: Path, *names: Path) -> None:
    """Copy a file of the machine into the image, with links for its other names."""
    target = place(folder, real)
    if not target.exists():
        shutil.copy2(real, target)
    for name in names:
        link = place(folder, name)
        if not link.exists() and not link.is_symlink():
            link.symlink_to(real)
