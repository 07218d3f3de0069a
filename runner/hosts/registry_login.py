"""Gives a host the login for a registry, only where the list of hosts asks for it.

A login that a host gets is known to everybody who rules that host. So by default no host gets one, and the settings of
Docker on this machine are not even read.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from rung.jobs.model.errors import EngineError
from rung.jobs.model.terminal_text import clean

DEFAULT_REGISTRY = "docker.io"


@dataclass(frozen=True)
class RegistryLogins:
    """The registries (`rung_registries` in the list of hosts) for which one host gets the login of this user."""

    registries: tuple[str, ...] = ()

    def headers(self, image: str) -> dict[str, str]:
        """Return what a request about an image sends along: the login for its registry, or nothing."""
        registry = registry_of(image)
        if registry not in self.registries:
            return {}
        login = _login(registry)
        return {"X-Registry-Auth": login} if login else {}


NO_LOGINS = RegistryLogins()


def registry_of(image: str) -> str:
    """Return the registry in the name of an image."""
    first, slash, _ = image.partition("/")
    return first.lower() if slash and (first == "localhost" or "." in first or ":" in first) else DEFAULT_REGISTRY


def _login(registry: str) -> str:
    """Return the login for a registry from the settings of Docker here, in the engine's form; empty: there is none."""
    # Loaded only here: no other part of Rung on a host's way needs it.
    from docker import auth
    from docker.errors import DockerException

    try:
        with warnings.catch_warnings():
            # The error that follows says the same.
            warnings.simplefilter("ignore")
            found = auth.load_config().resolve_authconfig(registry)
    except (DockerException, OSError, ValueError) as error:
        why = clean(str(error))[:200]
        raise EngineError(f"the login for {registry} cannot be read from the settings of Docker here: {why}") from None
    return auth.encode_header(found).decode("ascii") if found else ""
