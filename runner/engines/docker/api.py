"""Calls the Docker Engine of a host: the docker SDK over the one connection to the host.

No TCP socket, no client program, no second SSH: every request is a channel to the engine's UNIX socket. An engine that
does not answer raises HostUnreachable, as its host would. What the engine refuses raises EngineError with its message.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlencode

import docker
import requests
import urllib3
from docker.errors import APIError, DockerException, NotFound
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.jobs.model.terminal_text import clean
from rung.runner.seams.remote import Remote, RemoteSocket

# The version of Engine 20.10, the oldest that supports every request here; newer engines are asked in it too.
API = "1.41"
# An engine under load may need long to create a container; one that is silent for longer is stuck.
ANSWER_SECONDS = 60.0
MAX_TEXT = 500
CONFLICT = 409


class _Connection(HTTPConnection):
    def __init__(self, remote: Remote, path: str) -> None:
        super().__init__("localhost")
        self._remote, self._path = remote, path

    def connect(self) -> None:
        self.sock = cast(Any, open_engine(self._remote, self._path))


class _Pool(HTTPConnectionPool):
    def __init__(self, remote: Remote, path: str) -> None:
        super().__init__("localhost", maxsize=4)
        self._remote, self._path = remote, path

    def _new_conn(self) -> _Connection:
        return _Connection(self._remote, self._path)


class _Adapter(HTTPAdapter):
    """Sends every request through the pool of one host, past all proxies."""

    def __init__(self, remote: Remote, path: str) -> None:
        super().__init__()
        self._pool = _Pool(remote, path)

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        return str(request.path_url)

    def close(self) -> None:
        self._pool.close()


def open_engine(remote: Remote, path: str) -> RemoteSocket:
    """Open the engine's socket; one that is missing or refuses us counts as unreachable."""
    try:
        return remote.open_socket(path)
    except EngineError as error:
        advice = "is the Docker Engine running there, and is this account in its group?"
        raise HostUnreachable(f"{error}; {advice}") from None


class EngineApi:
    """The engine of one host. Its methods may be called from any thread."""

    def __init__(self, remote: Remote, path: str) -> None:
        self.host = remote.name
        self._remote, self._path = remote, path
        # The address is never used: all requests go through our adapter.
        self._client: Any = docker.APIClient(base_url=f"unix://{path}", version=API, timeout=int(ANSWER_SECONDS))
        self._client.trust_env = False
        self._client.mount("http+docker://", _Adapter(remote, path))

    def close(self) -> None:
        self._client.close()

    def negotiate_version(self) -> None:
        """Choose the API version that both sides support, or raise."""
        with self._translated_errors("version"):
            answer = self._client.version(api_version=False)
        least, most = answer.get("MinAPIVersion", API), answer.get("ApiVersion", API)
        if _version_tuple(most) < _version_tuple(API):
            version = clean(str(answer.get("Version")))[:40]
            raise EngineError(f"{self.host}: its Docker Engine {version} is too old; Rung needs 20.10 or newer")
        self._client._version = least if _version_tuple(least) > _version_tuple(API) else API

    # Containers

    def inspect(self, name: str) -> dict[str, Any] | None:
        with self._translated_errors(f"container {name}"):
            try:
                return cast(dict[str, Any], self._client.inspect_container(name))
            except NotFound:
                return None

    def containers(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        wanted = [f"{name}={value}" for name, value in labels.items()]
        with self._translated_errors("containers"):
            return cast(list[dict[str, Any]], self._client.containers(all=True, filters={"label": wanted}))

    def create(self, name: str, config: Mapping[str, Any]) -> bool:
        """Create a container; False when there is one of this name already."""
        with self._translated_errors(f"container {name}"):
            try:
                self._client.create_container_from_config(dict(config), name)
            except APIError as error:
                if error.status_code == CONFLICT:
                    return False
                raise
        return True

    def start(self, name: str) -> None:
        with self._translated_errors(f"container {name}"):
            self._client.start(name)

    def kill(self, name: str, signal: str) -> None:
        """Send a signal; nothing happens to a container that is gone or does not run."""
        with self._translated_errors(f"container {name}"):
            try:
                self._client.kill(name, signal)
            except APIError as error:
                if error.status_code not in (404, CONFLICT):
                    raise

    def remove(self, name: str) -> None:
        with self._translated_errors(f"container {name}"):
            try:
                self._client.remove_container(name, force=True, v=True)
            except APIError as error:
                # 409: somebody else is removing it now.
                if error.status_code not in (404, CONFLICT):
                    raise

    def wait(self, name: str, seconds: float) -> int:
        """Wait for a container's end and return its exit code."""
        with self._translated_errors(f"container {name}"):
            try:
                return int(self._client.wait(name, timeout=seconds)["StatusCode"])
            except requests.exceptions.ReadTimeout:
                raise EngineError(f"{self.host}: container {name}: took longer than {seconds:g} s") from None

    def output(self, name: str, *, errors: bool, size: int) -> bytes:
        """Return the beginning of what an ended container printed."""
        kept = bytearray()
        with self._translated_errors(f"container {name}"):
            pieces = self._client.logs(name, stdout=not errors, stderr=errors, stream=True, follow=False)
            for piece in pieces:
                kept += piece[: size - len(kept)]
                if len(kept) >= size:
                    pieces.close()
                    break
        return bytes(kept)

    def open_log(self, name: str, since: str | None, *, follow: bool) -> RemoteSocket:
        """Request the log of a container from a moment on; the caller reads the answer as it arrives."""
        options = {
            "stdout": 1,
            "stderr": 1,
            "timestamps": 1,
            "follow": int(follow),
            **({"since": since} if since else {}),
        }
        request = f"GET /v{self._client._version}/containers/{name}/logs?{urlencode(options)} HTTP/1.1\r\n"
        opened = open_engine(self._remote, self._path)
        with self._translated_errors(f"the log of {name}"):
            opened.settimeout(ANSWER_SECONDS)
            opened.sendall(f"{request}Host: engine\r\nConnection: close\r\n\r\n".encode("ascii"))
        return opened

    # Networks

    def create_network(self, config: Mapping[str, Any]) -> None:
        """Create a network; nothing happens when there is one of this name already."""
        with self._translated_errors(f"network {config['name']}"):
            try:
                self._client.create_network(**config)
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise

    def networks(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        wanted = [f"{name}={value}" for name, value in labels.items()]
        with self._translated_errors("networks"):
            return cast(list[dict[str, Any]], self._client.networks(filters={"label": wanted}))

    def remove_network(self, name: str) -> None:
        with self._translated_errors(f"network {name}"):
            try:
                self._client.remove_network(name)
            except NotFound:
                return

    # Images

    def image(self, name: str) -> dict[str, Any] | None:
        with self._translated_errors(f"image {name}"):
            try:
                return cast(dict[str, Any], self._client.inspect_image(name))
            except NotFound:
                return None

    def pull(self, name: str) -> Iterator[dict[str, Any]]:
        """Pull an image; yield the engine's status lines."""
        with self._translated_errors(f"image {name}"):
            yield from _status_lines(self._client.pull(name, stream=True, decode=True))

    def load(self, archive: Iterable[bytes]) -> list[dict[str, Any]]:
        """Load an image from its archive, sent as it is read; return the engine's status lines."""
        with self._translated_errors("an image's archive"):
            return list(_status_lines(self._client.load_image(archive)))

    def digest(self, name: str) -> str:
        """Return the digest that the registry has for a tag now; the host asks the registry."""
        with self._translated_errors(f"image {name}"):
            return str(self._client.inspect_distribution(name)["Descriptor"]["digest"])

    @contextmanager
    def _translated_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except APIError as error:
            text = error.explanation if isinstance(error.explanation, str) else str(error)
            raise EngineError(f"{self.host}: {what}: {clean(text)[:MAX_TEXT]}") from None
        except (DockerException, json.JSONDecodeError, KeyError) as error:
            raise EngineError(f"{self.host}: {what}: {clean(str(error))[:MAX_TEXT]}") from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            why = clean(str(error))[:MAX_TEXT]
            raise HostUnreachable(f"{self.host}: its Docker Engine does not answer: {why}") from None


def _status_lines(lines: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the engine's status lines; raise at the first one that is an error."""
    for one in lines:
        if not isinstance(one, dict):
            continue
        if "error" in one:
            raise DockerException(str(one["error"]))
        yield one


def _version_tuple(version: Any) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in str(version).split("."))
    except ValueError:
        return (0,)
