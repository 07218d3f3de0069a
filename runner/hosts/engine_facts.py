"""Asks a host's engine for its version and our containers, before any job goes there.

Plain HTTP over the engine's socket, limited in size and time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from rung.jobs.model.errors import EngineError
from rung.jobs.model.terminal_text import clean
from rung.runner.hosts.http_exchange import AnswerDamaged, Limits, parse_json, read_answer, send_request
from rung.runner.seams.remote import Remote

# The label on every container of ours, with the id of the job.
JOB_LABEL = "rung.job"
SILENCE_SECONDS, ANSWER_SECONDS = 5.0, 15.0
# A host with a thousand containers answers with two megabytes.
MAX_BYTES = 4 << 20
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


def _get(remote: Remote, path: str, target: str) -> Any:
    opened = remote.open_socket(path)
    try:
        opened.settimeout(SILENCE_SECONDS)
        send_request(opened, f"GET {target}", {})
        answer = read_answer(opened, Limits(MAX_BYTES, ANSWER_SECONDS, SILENCE_SECONDS))
        if answer.status != 200:
            raise AnswerDamaged(f"HTTP {answer.status}")
        return parse_json(answer.body)
    except (OSError, AnswerDamaged) as error:
        what = clean(str(error)) or type(error).__name__
        raise EngineError(f"{remote.name}: {path} does not answer as an engine does: {what[:200]}") from None
    finally:
        opened.close()
