"""Asks a host one question with the product's own code, in a process of its own, and reports what that cost.

`python -m tests.support.hostile_client HOME PORT QUESTION` prints JSON: the error and whether it is ours, the seconds,
and the growth of the peak of memory. The product's own time limits are shortened, so that waiting for them is quick.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import RungError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.model.paths import HomePaths
from rung.runner.engines.docker.engine import DockerEngine
from rung.runner.hosts.survey import survey
from rung.runner.seams.engine import Container, Presence, Request
from rung.runner.ssh.remote import Remotes
from tests.support.hostile_site import IMAGE

LIMIT_SECONDS = 2.0
# Where the product takes all that a host sends, this process fails and not the machine.
MOST_MEMORY = 3 << 30


def shorten_limits() -> None:
    """Make every time limit of the parts that talk to hosts at most a few seconds."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("rung.runner.engines", "rung.runner.ssh", "rung.runner.hosts", "rung.runner.files")):
            for key, value in list(vars(module).items()):
                if key.endswith("SECONDS") and isinstance(value, float):
                    setattr(module, key, min(value, LIMIT_SECONDS))
                for method in vars(value).values() if isinstance(value, type) else ():
                    _shorten_defaults(method)


def _shorten_defaults(method: object) -> None:
    """Shorten the time limits that are the defaults of arguments."""
    defaults = getattr(method, "__kwdefaults__", None)
    for key in defaults or ():
        if "seconds" in key and isinstance(defaults[key], float):
            defaults[key] = min(defaults[key], LIMIT_SECONDS)


def request_of(home: Path) -> Request:
    paths = HomePaths(home / "rung").attempt("job-1", 1)
    paths.folder.mkdir(parents=True)
    at = Path("/rung/job/checkpoints")
    return Request("job-1", 1, ("true",), Path("/rung/work"), {}, paths, at, container=Container(IMAGE))


def ask(question: str, engine: DockerEngine, remote: Any, host: Host, request: Request) -> object:
    if question == "run":
        return [len(part) for part in engine.run(["sh", "-c", "true"], request, LIMIT_SECONDS)[1:]]
    if question == "files":
        return len(engine.list_files(request, "*"))
    if question == "stop":
        return engine.stop(request.paths, force=True)
    if question == "image":
        return engine.incompatibility(IMAGE, Gpu("P100", (6, 0)))
    if question == "survey":
        return bool(survey(host, remote, time.time).away)
    return follow(engine, request)


def follow(engine: DockerEngine, request: Request) -> object:
    """Follow an attempt for some seconds, as the controller does."""
    until, seen = time.monotonic() + 2 * LIMIT_SECONDS, engine.observe(request.paths)
    while time.monotonic() < until and seen.presence in (Presence.RUNNING, Presence.UNREACHABLE, Presence.WAITING):
        time.sleep(0.2)
        seen = engine.observe(request.paths)
    return f"{seen.presence} {seen.detail}"


def main(home: Path, port: int, question: str) -> dict[str, object]:
    shorten_limits()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    host = Host("liar", "127.0.0.1", "rung", port)
    remotes = Remotes([host], home, {"HOME": str(home)})
    remote, request = remotes.remote("liar"), request_of(home)
    engine = DockerEngine(remote, "store")
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    found: dict[str, object] = {"ours": True, "error": ""}
    try:
        found["answer"] = str(ask(question, engine, remote, host, request))[:2000]
    except RungError as error:
        found["error"] = f"{type(error).__name__}: {error}"[:2000]
    except Exception as error:
        found |= {"ours": False, "error": repr(error)[:2000]}
    used = resource.getrusage(resource.RUSAGE_SELF)
    found |= {"seconds": time.monotonic() - begun, "memory": (used.ru_maxrss - before) << 10}
    return found | {
        "processor": used.ru_utime + used.ru_stime,
        "log": request.paths.log.exists() and request.paths.log.stat().st_size,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])) + "\n")
    sys.stdout.flush()
    # Threads that wait for the host must not hold up the end.
    os._exit(0)
