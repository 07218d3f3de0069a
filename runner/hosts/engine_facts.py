"""Asks a host's engine for its version and our containers, before any job goes there.

Plain HTTP over the engine's socket, limited in size and time.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from rung.jobs.model.errors import EngineError
from rung.jobs.model.terminal_text import clean
from rung.runner.seams.remote import Remote, RemoteSocket

# The label on every container of ours, with the id of the job.
JOB_LABEL = "rung.job"
ANSWER_SECONDS = 5.0
# For all of an answer: a host may send one byte at a time.
WHOLE_SECONDS = 30.0
# A host with thousands of containers answers with a few megabytes.
MAX_BYTES = 16 << 20
OURS = "/containers/json?" + urlencode({"filters": json.dumps({"label": [JOB_LABEL]})})


@dataclass(frozen=True)
class EngineFacts:
    version: str
    # The running containers of ours: their ids, and the job of each.
    jobs: Mapping[str, str]


def ask_engine(remote: Remote, path: str) -> EngineFacts:
    """Return the facts about the engine behind a socket, or raise an EngineError."""
    version = _get(remote, path, "/version")
    containers = _get(remote, path, OURS)
    try:
        jobs = {str(one["Id"]): clean(str(one["Labels"][JOB_LABEL])) for one in containers}
        return EngineFacts(clean(str(version["Version"]))[:40], jobs)
    except (KeyError, TypeError):
        raise EngineError(f"{remote.name}: {path} answers, but not as an engine does") from None


def _get(remote: Remote, path: str, request: str) -> Any:
    opened = remote.open_socket(path)
    late = threading.Timer(WHOLE_SECONDS, opened.shutdown, (socket.SHUT_RDWR,))
    late.daemon = True
    late.start()
    try:
        opened.settimeout(ANSWER_SECONDS)
        return _ask(opened, request)
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        what = clean(str(error)) or type(error).__name__
        raise EngineError(f"{remote.name}: {path} does not answer as an engine does: {what[:200]}") from None
    finally:
        late.cancel()
        opened.close()


def _ask(opened: RemoteSocket, request: str) -> Any:
    connection = http.client.HTTPConnection("engine")
    connection.sock = opened
    connection.request("GET", request)
    response = connection.getresponse()
    with response:
        body = response.read(MAX_BYTES)
    if response.status != 200:
        raise ValueError(f"HTTP {response.status}")
    return json.loads(body)
