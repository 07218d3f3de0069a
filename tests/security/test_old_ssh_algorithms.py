"""Tests that only modern algorithms are offered to a host. 0.1.0 also offered 3des-cbc, hmac-md5 and hmac-sha1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rung.jobs.model.errors import HostRefused
from rung.runner.ssh.remote import SshRemote
from rung.runner.ssh.transport import Transport
from tests import pace
from tests.runner.conftest import client_home, new_sshd, reach
from tests.support.sshd import Sshd

__all__ = ["client_home", "new_sshd", "reach"]

OLD = {
    "Ciphers 3des-cbc": "the host offers no modern cipher; allow one there (Ciphers in sshd_config): aes128-ctr, ",
    "Ciphers aes128-cbc,aes256-cbc": "the host offers no modern cipher",
    "MACs hmac-md5,hmac-sha1": "the host offers no modern MAC; allow one there (MACs in sshd_config): hmac-sha2-256",
    "KexAlgorithms diffie-hellman-group14-sha1": "the host offers no modern key exchange; allow one there (KexAlgo",
    "HostKeyAlgorithms ssh-rsa": "the host offers no modern type of host key; allow one there (HostKeyAlgorithms in",
}


@pytest.mark.parametrize("setting", OLD)
def test_a_host_that_offers_only_old_algorithms_is_refused_with_what_it_lacks(
    setting: str, new_sshd: Callable[..., Sshd], reach: Callable[..., SshRemote]
) -> None:
    server = new_sshd(setting, host_keys=("rsa",))
    server.introduce()
    server.start()
    with pytest.raises(HostRefused) as raised:
        reach(server).run(["true"], timeout=pace.seconds(60))
    message = str(raised.value)
    assert message.startswith(f"titan1: {OLD[setting]}"), message
    assert "\n" not in message
    assert server.count_in_log("Accepted") == 0


def test_a_host_that_also_offers_old_algorithms_is_reached_with_a_modern_one(
    new_sshd: Callable[..., Sshd], reach: Callable[..., SshRemote]
) -> None:
    settings = ("Ciphers 3des-cbc,aes256-gcm@openssh.com", "MACs hmac-md5,hmac-sha2-512")
    server = new_sshd(*settings, "HostKeyAlgorithms ssh-rsa,rsa-sha2-256", host_keys=("rsa",))
    server.introduce()
    server.start()
    assert reach(server).run(["echo", "in"], timeout=pace.seconds(60)).out == b"in\n"


def test_no_old_algorithm_is_in_the_offer() -> None:
    offers = ("ciphers", "macs", "kex", "keys", "pubkeys")
    offered = {name for offer in offers for name in getattr(Transport, f"_preferred_{offer}")}
    assert len(offered) > 20
    assert not [name for name in offered if name.endswith(("-cbc", "-sha1", "-md5", "-96")) or name == "ssh-rsa"]
