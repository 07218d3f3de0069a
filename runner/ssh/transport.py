"""Extends paramiko's SSH transport by a keepalive that notices a dead peer, and by channels to UNIX sockets.

Some names used here are internal to paramiko; its version is pinned, and tests with a real sshd check them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import paramiko
from paramiko.common import cMSG_CHANNEL_OPEN, cMSG_GLOBAL_REQUEST
from paramiko.packet import Packetizer

from rung.jobs.model.terminal_text import clean

# After this silence the peer is asked for an answer; after twice as long it is dead.
ASK_SECONDS = 5.0
SILENCE_SECONDS = 2 * ASK_SECONDS
# A full send buffer on a slow link may block the reading thread; longer than this, the link is dead.
STUCK_SECONDS = 30.0
LOST = "the connection was lost"
FORBIDDEN = 1  # RFC 4254: administratively prohibited
# Bytes that may wait unread in a channel to a socket: 20 MB/s at 25 ms, and bounded for hundreds of followed logs.
SOCKET_WINDOW = 1 << 19
# The only algorithms that are offered. paramiko itself still knows 3des, CBC, MD5 and SHA-1, which are broken or weak.
CIPHERS = ("aes128-ctr", "aes192-ctr", "aes256-ctr", "aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
MACS = (
    *("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com"),
    *("hmac-sha2-256", "hmac-sha2-512"),
)
KEY_EXCHANGES = (
    *("mlkem768x25519-sha256", "curve25519-sha256@libssh.org"),
    *("ecdh-sha2-nistp256", "ecdh-sha2-nistp384", "ecdh-sha2-nistp521"),
    *("diffie-hellman-group16-sha512", "diffie-hellman-group-exchange-sha256", "diffie-hellman-group14-sha256"),
)
KEYS = (
    *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    *("rsa-sha2-512", "rsa-sha2-256"),
)


class KeepalivePacketizer(Packetizer):
    """Reads and writes packets, and sends a request when the peer is silent.

    paramiko's own keepalive expects no answer, so it notices nothing.
    """

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self._ask: Callable[[], bool] | None = None
        self._heard = self._polled = self._asked = time.monotonic()
        self._silent = False
        self._handshake_until: float | None = None

    def start_asking(self, ask: Callable[[], bool]) -> None:
        self._heard = self._polled = self._asked = time.monotonic()
        self._ask = ask

    @property
    def dead(self) -> bool:
        """Tell whether the peer did not answer our request, or nothing can be sent or read any more."""
        return self._silent or (self._ask is not None and time.monotonic() - self._polled > STUCK_SECONDS)

    def read_message(self) -> tuple[int, paramiko.Message]:
        message = super().read_message()
        self._heard = self._polled = time.monotonic()
        return message

    def _check_keepalive(self) -> None:
        """Called by paramiko's reading thread whenever there was nothing to read, about ten times a second."""
        now = self._polled = time.monotonic()
        if self._ask is None:
            return
        silence = now - self._heard
        # During a key exchange nothing can be sent; that must end in time, too.
        if (silence > SILENCE_SECONDS and self._asked > self._heard) or silence > STUCK_SECONDS:
            self._silent = True
        elif now - max(self._heard, self._asked) > ASK_SECONDS and self._ask():
            self._asked = now

    def close(self) -> None:
        """Close the socket. Behind a jump host it is a channel of that connection, which may be gone as well.

        An error here would end paramiko's thread before it wakes those who wait for an answer.
        """
        with suppress(EOFError, OSError, paramiko.SSHException):
            super().close()

    # The handshake is timed by the clock: paramiko's timer is a thread that delays the end of the program.

    def start_handshake(self, timeout: float) -> None:
        self._handshake_until = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        return self._handshake_until is not None and time.monotonic() > self._handshake_until

    def complete_handshake(self) -> None:
        self._handshake_until = None


class _Seen(dict[int, bool]):
    """Keeps only the highest channel number, since they only grow: paramiko's dict keeps all of them for ever."""

    _highest = -1

    def __setitem__(self, number: int, seen: bool) -> None:
        self._highest = max(self._highest, number)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number <= self._highest


class _Events(dict[int, threading.Event]):
    """Lets paramiko's thread iterate when the connection ends, while other threads add to it."""

    def values(self) -> Any:
        return list(super().values())


class ChannelRefused(paramiko.SSHException):
    """The host refused a channel; the connection is fine."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(text)
        self.forbidden = reason == FORBIDDEN


class Transport(paramiko.Transport):
    """One SSH connection."""

    packetizer: KeepalivePacketizer
    active: bool
    _preferred_ciphers = CIPHERS
    _preferred_macs = MACS
    _preferred_kex = KEY_EXCHANGES
    _preferred_keys = KEYS
    _preferred_pubkeys = KEYS

    def __init__(self, sock: Any, disabled_algorithms: Any = None) -> None:
        super().__init__(sock, disabled_algorithms=disabled_algorithms, packetizer_class=KeepalivePacketizer)
        self.channels_seen = _Seen()
        self.channel_events = _Events()
        self._refusals: dict[int, ChannelRefused] = {}
        # Untyped access to paramiko's private methods.
        self._inner: Any = self

    @property
    def dead(self) -> bool:
        return self.packetizer.dead

    def keep_alive(self) -> None:
        self.packetizer.start_asking(self._ask)

    def _ask(self) -> bool:
        """Ask the peer for any answer; not during a key exchange, when it answers anyway."""
        if not self.clear_to_send.is_set() or self.packetizer.need_rekey():
            return False
        request = paramiko.Message()
        request.add_byte(cMSG_GLOBAL_REQUEST)
        request.add_string("keepalive@openssh.com")
        request.add_boolean(True)
        self._inner._send_user_message(request)
        return True

    def start_session(self, timeout: float) -> paramiko.Channel:
        return self._open("session", (), self.default_window_size, timeout)

    def open_tcp(self, address: str, port: int, timeout: float) -> paramiko.Channel:
        """Open a channel to an address as the host sees it; the last two fields are the origin, which nobody needs."""
        return self._open("direct-tcpip", (address, port, "127.0.0.1", 0), self.default_window_size, timeout)

    def open_unix_socket(self, path: str, timeout: float) -> paramiko.Channel:
        """Open a channel to a UNIX socket on the host; the last two fields are reserved by OpenSSH."""
        return self._open("direct-streamlocal@openssh.com", (path, "", 0), SOCKET_WINDOW, timeout)

    def _open(self, kind: str, fields: tuple[str | int, ...], window: int, timeout: float) -> paramiko.Channel:
        """Open a channel. paramiko's open_channel knows fewer kinds, and mixes up the refusals of two threads."""
        with self.lock:
            number = self._inner._next_channel()
            channel: Any = paramiko.Channel(number)
            self._inner._channels.put(number, channel)
            self.channel_events[number] = answered = threading.Event()
            self.channels_seen[number] = True
            channel._set_transport(self)
            channel._set_window(window, self.default_max_packet_size)
        request = paramiko.Message()
        request.add_byte(cMSG_CHANNEL_OPEN)
        for field in (kind, number, window, self.default_max_packet_size, *fields):
            request.add_string(field) if isinstance(field, str) else request.add_int(field)
        self._inner._send_user_message(request)
        self._wait(number, answered, timeout)
        if number in self._refusals:
            raise self._refusals.pop(number)
        if not self.active:
            raise paramiko.SSHException(LOST)
        return cast(paramiko.Channel, channel)

    def _wait(self, number: int, answered: threading.Event, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not answered.wait(0.1) and self.active:
            if time.monotonic() > deadline:
                self._inner._channels.delete(number)
                self.channel_events.pop(number, None)
                raise paramiko.SSHException(f"no channel was opened in {timeout:g} s")

    def _parse_channel_open_failure(self, message: paramiko.Message) -> None:
        number, reason, text = message.get_int(), message.get_int(), message.get_text()
        self._refusals[number] = ChannelRefused(reason, clean(text))
        message.rewind()
        parent: Any = super()
        parent._parse_channel_open_failure(message)
