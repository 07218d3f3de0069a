"""Calls the Docker Engine of a host over the one connection to the host.

No TCP socket, no client program, no second SSH: every request is a channel to the engine's UNIX socket. An engine that
does not answer raises HostUnreachable, as its host would. What the engine refuses, or answers in a way that no engine
does, raises EngineError. Every answer is limited in bytes and time, and no login of this machine is sent along.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode

from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.docker.log_stream import read_output
from rung.runner.hosts.http_exchange import (
    Answer,
    AnswerDamaged,
    Body,
    Limits,
    as_object,
    as_objects,
    body_pieces,
    json_lines,
    parse_json,
    read_answer,
    send_request,
)
from rung.runner.hosts.registry_login import NO_LOGINS, RegistryLogins
from rung.runner.seams.remote import Remote, RemoteSocket

# The version of Engine 20.10, the oldest that supports every request here; newer engines are asked in it too.
API = "1.41"
# An engine under load may need long to create a container; one that is silent for longer is stuck.
ANSWER_SECONDS = 60.0
# The list of our containers on a host is the longest answer: 2 KB for each. As Python's objects JSON takes up to twenty
# times its size.
ANSWER_BYTES = 4 << 20
# The output of a look has the time of every line before it, and lines may be short.
OUTPUT_BYTES = 64 << 20
# A pull or a load reports its progress several times a second, but may be silent while it unpacks a layer.
STATUS_SECONDS, STATUS_SILENCE, STATUS_BYTES = 6 * 3600.0, 600.0, 256 << 20
STATUS_KEPT = 20
MAX_TEXT = 500
NOT_FOUND, CONFLICT = 404, 409


def open_engine(remote: Remote, path: str) -> RemoteSocket:
    """Open the engine's socket; one that is missing or refuses us counts as unreachable."""
    try:
        return remote.open_socket(path)
    except EngineError as error:
        advice = "is the Docker Engine running there, and is this account in its group?"
        raise HostUnreachable(f"{error}; {advice}") from None


class EngineApi:
    """The engine of one host. Its methods may be called from any thread."""

    def __init__(self, remote: Remote, path: str, logins: RegistryLogins = NO_LOGINS) -> None:
        self.host = remote.name
        self._remote, self._path, self._logins = remote, path, logins
        self._version = API

    def negotiate_version(self) -> None:
        """Choose the API version that both sides support, or raise."""
        with self._translated_errors("version"):
            answer = as_object(self._success(self._ask("GET", "/version")))
        least, most = answer.get("MinAPIVersion", API), answer.get("ApiVersion", API)
        if _version_tuple(most) < _version_tuple(API):
            version = clean(str(answer.get("Version")))[:40]
            raise EngineError(f"{self.host}: its Docker Engine {version} is too old; Rung needs 20.10 or newer")
        # Written anew from its numbers: it becomes a part of every request.
        self._version = ".".join(map(str, max(_version_tuple(least), _version_tuple(API))))

    # Containers

    def inspect(self, name: str) -> dict[str, Any] | None:
        with self._translated_errors(f"container {name}"):
            return self._found(self._ask("GET", self._target(f"/containers/{quote(name)}/json")))

    def containers(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        with self._translated_errors("containers"):
            answer = self._ask("GET", self._target("/containers/json", all=1, filters=_with_labels(labels)))
            return as_objects(self._success(answer))

    def create(self, name: str, config: Mapping[str, Any]) -> bool:
        """Create a container; False when there is one of this name already."""
        with self._translated_errors(f"container {name}"):
            answer = self._ask("POST", self._target("/containers/create", name=name), config)
            if answer.status != CONFLICT:
                self._success(answer)
        return answer.status != CONFLICT

    def start(self, name: str) -> None:
        with self._translated_errors(f"container {name}"):
            self._success(self._ask("POST", self._target(f"/containers/{quote(name)}/start")))

    def kill(self, name: str, signal: str) -> None:
        """Send a signal; nothing happens to a container that is gone or does not run."""
        with self._translated_errors(f"container {name}"):
            answer = self._ask("POST", self._target(f"/containers/{quote(name)}/kill", signal=signal))
            self._success(answer, besides=(NOT_FOUND, CONFLICT))

    def remove(self, name: str) -> None:
        with self._translated_errors(f"container {name}"):
            answer = self._ask("DELETE", self._target(f"/containers/{quote(name)}", force=1, v=1))
            # 409: somebody else is removing it now.
            self._success(answer, besides=(NOT_FOUND, CONFLICT))

    def wait(self, name: str, seconds: float) -> int:
        """Wait for a container's end and return its exit code."""
        with self._translated_errors(f"container {name}"):
            try:
                answer = self._ask("POST", self._target(f"/containers/{quote(name)}/wait"), seconds=seconds)
            except TimeoutError:
                raise EngineError(f"{self.host}: container {name}: took longer than {seconds:g} s") from None
            code = as_object(self._success(answer)).get("StatusCode")
            if not isinstance(code, int):
                raise AnswerDamaged("the answer has no exit code")
            return code

    def output(self, name: str, *, errors: bool, size: int) -> bytes:
        """Return the beginning of what an ended container printed."""
        stream = {"stdout": int(not errors), "stderr": int(errors), "follow": 0}
        with self._translated_errors(f"container {name}"), closing(self._request_log(name, stream)) as opened:
            return read_output(opened, size, Limits(OUTPUT_BYTES, ANSWER_SECONDS, ANSWER_SECONDS))

    def open_log(self, name: str, since: str | None, *, follow: bool) -> RemoteSocket:
        """Request the log of a container from a moment on; the caller reads the answer as it arrives."""
        options = {"stdout": 1, "stderr": 1, "follow": int(follow), **({"since": since} if since else {})}
        with self._translated_errors(f"the log of {name}"):
            return self._request_log(name, options)

    def _request_log(self, name: str, options: Mapping[str, Any]) -> RemoteSocket:
        target = self._target(f"/containers/{quote(name)}/logs", timestamps=1, **options)
        opened = open_engine(self._remote, self._path)
        opened.settimeout(ANSWER_SECONDS)
        send_request(opened, f"GET {target}", {})
        return opened

    # Networks

    def create_network(self, config: Mapping[str, Any]) -> None:
        """Create a network; nothing happens when there is one of this name already."""
        with self._translated_errors(f"network {config['Name']}"):
            self._success(self._ask("POST", self._target("/networks/create"), config), besides=(CONFLICT,))

    def networks(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        with self._translated_errors("networks"):
            answer = self._ask("GET", self._target("/networks", filters=_with_labels(labels)))
            return as_objects(self._success(answer))

    def remove_network(self, name: str) -> None:
        with self._translated_errors(f"network {name}"):
            answer = self._ask("DELETE", self._target(f"/networks/{quote(name)}"))
            self._success(answer, besides=(NOT_FOUND,))

    # Images

    def image(self, name: str) -> dict[str, Any] | None:
        with self._translated_errors(f"image {name}"):
            return self._found(self._ask("GET", self._target(f"/images/{_image_path(name)}/json")))

    def pull(self, name: str) -> Iterator[dict[str, Any]]:
        """Pull an image by its digest; yield the engine's status lines."""
        repository, _, digest = name.rpartition("@")
        target = self._target("/images/create", fromImage=repository, tag=digest)
        with self._translated_errors(f"image {name}"):
            headers = {"Content-Length": "0", **self._logins.headers(name)}
            yield from self._statuses(target, headers)

    def load(self, archive: Iterable[bytes]) -> list[dict[str, Any]]:
        """Load an image from its archive, sent as it is read; return the engine's last status lines."""
        with self._translated_errors("an image's archive"):
            headers = {"Content-Type": "application/x-tar"}
            return list(deque(self._statuses(self._target("/images/load"), headers, archive), STATUS_KEPT))

    def digest(self, name: str) -> Any:
        """Return the digest that the registry has for a tag now; the host asks the registry."""
        with self._translated_errors(f"image {name}"):
            target, headers = self._target(f"/distribution/{_image_path(name)}/json"), self._logins.headers(name)
            answer = as_object(self._success(self._ask("GET", target, headers=headers)))
            return as_object(answer.get("Descriptor")).get("digest")

    # Requests

    def _target(self, path: str, **query: str | int) -> str:
        return f"/v{self._version}{path}{f'?{urlencode(query)}' if query else ''}"

    def _ask(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Answer:
        """Send a request and return the whole answer."""
        data = json.dumps({key: value for key, value in body.items() if value is not None}) if body else ""
        fields = {**(headers or {}), "Content-Length": str(len(data)), "Content-Type": "application/json"}
        with closing(open_engine(self._remote, self._path)) as opened:
            opened.settimeout(ANSWER_SECONDS)
            # An engine that refuses a request may close the connection before it has all of it, and say why.
            with suppress(BrokenPipeError):
                send_request(opened, f"{method} {target}", fields)
                opened.sendall(data.encode("ascii"))
            return read_answer(opened, Limits(ANSWER_BYTES, seconds, seconds))

    def _statuses(
        self, target: str, headers: Mapping[str, str], chunks: Iterable[bytes] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the status lines of a long request as they arrive; raise at the first one that is an error."""
        with closing(open_engine(self._remote, self._path)) as opened:
            opened.settimeout(ANSWER_SECONDS)
            with suppress(BrokenPipeError):
                send_request(opened, f"POST {target}", headers, chunks)
            body = Body()
            for status in json_lines(body_pieces(opened, body, _STATUS)):
                failed = (body.status or 0) >= 400
                if "error" in status or failed:
                    raise _Refused(clean(str(status.get("message" if failed else "error")))[:MAX_TEXT])
                yield status
            if (body.status or 0) >= 400:
                raise _Refused(f"HTTP {body.status}")

    def _found(self, answer: Answer) -> dict[str, Any] | None:
        """Return the object of an answer, or None when the engine knows no such thing."""
        return None if answer.status == NOT_FOUND else as_object(self._success(answer))

    def _success(self, answer: Answer, besides: tuple[int, ...] = ()) -> Any:
        """Return the JSON of an answer; raise with the engine's message when it is an error."""
        if answer.status >= 400 and answer.status not in besides:
            raise _Refused(_message(answer))
        return parse_json(answer.body) if answer.body else None

    @contextmanager
    def _translated_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (AnswerDamaged, _Refused) as error:
            raise EngineError(f"{self.host}: {what}: {error}") from None
        except OSError as error:
            why = clean(str(error))[:MAX_TEXT]
            raise HostUnreachable(f"{self.host}: its Docker Engine does not answer: {why}") from None


class _Refused(Exception):
    """The engine's own message about a request that it refuses."""


def _message(answer: Answer) -> str:
    """Return the engine's own words about an error."""
    text = answer.body.decode("utf-8", "replace")
    with suppress(AnswerDamaged):
        text = str(as_object(parse_json(answer.body)).get("message"))
    return clean(text[: 4 * MAX_TEXT])[:MAX_TEXT] or f"HTTP {answer.status}"


_STATUS = Limits(STATUS_BYTES, STATUS_SECONDS, STATUS_SILENCE)


def _with_labels(labels: Mapping[str, str]) -> str:
    """Return the filter for what has these labels."""
    return json.dumps({"label": [f"{name}={value}" for name, value in labels.items()]})


def _image_path(name: str) -> str:
    return quote(name, safe="/:@")


def _version_tuple(version: Any) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in str(version)[:40].split("."))
    except ValueError:
        return (0,)
