"""Keeps the secrets of an attempt in the memory of its host."""

from __future__ import annotations

from collections.abc import Mapping

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.container_config import secrets_folder
from rung.runner.engines.on_host.host_account import HostAccount

# Secrets are kept only in memory, and /dev/shm could be a plain folder on the disk.
SECRETS_SCRIPT = """
set -eu
umask 077
while read -r _ where type _; do [ "$where $type" = "/dev/shm tmpfs" ] && found=yes; done </proc/mounts
[ -n "${found:-}" ] || { echo "/dev/shm is no tmpfs, and secrets are kept in memory alone" >&2; exit 1; }
rm -rf "$1"
mkdir "$1"
"""


def put_secrets(account: HostAccount, paths: AttemptPaths, secrets: Mapping[str, str]) -> None:
    """Write secrets to the host's memory, readable only by us; the wrapper inside reads and removes them."""
    folder = secrets_folder(account.store_id, paths.job_id, paths.number)
    account.put_secrets(SECRETS_SCRIPT, folder, secrets)
