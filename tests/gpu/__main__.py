"""The command that tries this machine as a host: python -m tests.gpu probe | down."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.fleet.patience import FleetError, say
from tests.gpu.host import GpuHost
from tests.gpu.programs import program

ROOT = Path(__file__).resolve().parents[2]
RUNG = [sys.executable, "-c", "from rung.runner.cli.main import main; main()"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description="This machine as a host of Rung.")
    parser.add_argument("verb", choices=["probe", "down"], help="probe runs a small training in a container on the GPU")
    options = parser.parse_args()
    host = GpuHost()
    try:
        if options.verb == "down":
            host.down()
            return 0
        with host.up():
            return probe(host)
    except FleetError as error:
        say(str(error))
        return 2


def probe(host: GpuHost) -> int:
    """Print what Rung finds on this machine, and run a training in a container on it."""
    folder = host.folder / "probe"
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "probe.py", folder / "train.py")
    spec = {"name": "probe", "run": "python train.py", **host.fields(), "success": {"metric": "val_loss", "below": 1.0}}
    (folder / "job.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    sys.stdout.write((folder / "job.yaml").read_text())
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    own = {"HOME": host.client, "RUNG_HOME": host.folder / "rung", "RUNG_HOSTS": host.inventory, "PYTHONPATH": path}
    env = {**os.environ, **{name: str(value) for name, value in own.items()}, "RUNG_CONTROLLER": "manual"}
    for words in (["hosts"], ["check"]):
        subprocess.run([*RUNG, *words], env=env, check=False)
    launched = subprocess.Popen([*RUNG, "launch", "-f", str(folder / "job.yaml")], env=env)
    began = time.monotonic()
    while launched.poll() is None and time.monotonic() - began < 240:
        time.sleep(4)
        subprocess.run([str(program("nvidia-smi")), "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv"])
        subprocess.run([*RUNG, "hosts"], env=env, check=False)
    # Stop following; a job that still waits ends with the host.
    launched.terminate()
    subprocess.run([*RUNG, "logs", "probe"], env=env, check=False)
    subprocess.run([*RUNG, "history", "--diff", "probe"], env=env, check=False)
    return launched.wait()


if __name__ == "__main__":
    sys.exit(main())
