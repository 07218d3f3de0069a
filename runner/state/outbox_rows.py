"""Reads and writes the messages that wait for people, as a part of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# More do not wait for one target: the oldest are left out, and the next digest says how many.
MOST_WAITING = 1000


@dataclass(frozen=True)
class OutboxRow:
    """A message that waits for one target. `begun_at`: it may have arrived, because nobody recorded how a send ended.

    One with a topic is sent at `due_at` at the earliest: what holds only if it lasts is told later, or never.
    """

    number: int
    target: str
    occasions: tuple[str, ...]
    text: str
    due_at: float
    begun_at: float | None = None
    topic: str = ""

    def is_due(self, now: float) -> bool:
        """Tell whether it may be sent. Only what waits for its time depends on a clock, which somebody may set back."""
        return not self.topic or self.due_at <= now


@dataclass(frozen=True)
class NewMessage:
    """A message for one target, made from an event. The topic takes it back, if it has not been sent by then."""

    event: int
    target: str
    topic: str
    occasions: tuple[str, ...]
    text: str
    due_at: float


@dataclass(frozen=True)
class TargetRow:
    """What is known about the sending to one target."""

    name: str
    sent: int = 0
    sent_at: float | None = None
    error: str | None = None
    error_at: float | None = None
    left_out: int = 0


class OutboxRows:
    """The part of the store that knows messages and what has become of them."""

    _db: sqlite3.Connection

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        raise NotImplementedError

    def outbox_cursor(self) -> int | None:
        """Return the last event that was turned into messages; None: nobody is told anything yet."""
        rows = self._rows("SELECT seq FROM outbox_cursor")
        return int(rows[0]["seq"]) if rows else None

    def last_event(self) -> int:
        return int(self._rows("SELECT coalesce(max(seq), 0) AS seq FROM events")[0]["seq"])

    def outbox(self, target: str | None = None) -> list[OutboxRow]:
        """Return the messages that wait, the oldest first."""
        where, values = ("WHERE target = ?", (target,)) if target is not None else ("", ())
        columns = "number, target, occasions, text, due_at, begun_at, topic"
        rows = self._rows(f"SELECT {columns} FROM outbox {where} ORDER BY due_at, number", *values)  # noqa: S608
        return [OutboxRow(**{**dict(row), "occasions": tuple(row["occasions"].split(","))}) for row in rows]

    def outbox_targets(self) -> dict[str, TargetRow]:
        return {row["name"]: TargetRow(**dict(row)) for row in self._rows("SELECT * FROM outbox_targets")}

    # Writing, inside a transaction

    def set_outbox_cursor(self, seq: int | None) -> None:
        """Remember the last event that was turned into messages; None: forget it, later events do not count."""
        self._db.execute("DELETE FROM outbox_cursor")
        if seq is not None:
            self._db.execute("INSERT INTO outbox_cursor VALUES (1, ?)", (seq,))

    def add_message(self, new: NewMessage) -> None:
        columns = "event, target, topic, occasions, text, due_at"
        row = (new.event, new.target, new.topic, ",".join(new.occasions), new.text, new.due_at)
        self._db.execute(f"INSERT OR IGNORE INTO outbox ({columns}) VALUES (?,?,?,?,?,?)", row)  # noqa: S608

    def drop_topic(self, topic: str) -> None:
        """Take back the messages of a topic that have not been sent: they are no longer true."""
        self._db.execute("DELETE FROM outbox WHERE topic = ?", (topic,))

    def bound_outbox(self, targets: Sequence[str]) -> None:
        """Forget messages for targets that are no longer named, and the oldest where too many wait."""
        marks = ",".join("?" * len(targets))
        self._db.execute(f"DELETE FROM outbox WHERE target NOT IN ({marks})", tuple(targets))  # noqa: S608
        for name in targets:
            oldest = "SELECT number FROM outbox WHERE target = ? ORDER BY number DESC LIMIT -1 OFFSET ?"
            gone = self._db.execute(f"DELETE FROM outbox WHERE number IN ({oldest})", (name, MOST_WAITING)).rowcount  # noqa: S608
            if gone:
                self._target(name, "left_out = left_out + ?", gone)

    def sending(self, rows: Iterable[OutboxRow], *, at: float) -> None:
        """Write, before a send, that these messages may arrive from now on."""
        self._db.executemany("UPDATE outbox SET begun_at = ? WHERE number = ?", [(at, row.number) for row in rows])

    def sent(self, target: str, rows: Sequence[OutboxRow], *, digest: bool, at: float) -> None:
        """Write that a service has accepted these messages; a digest has also said how many were left out."""
        self._db.executemany("DELETE FROM outbox WHERE number = ?", [(row.number,) for row in rows])
        told = ", left_out = 0" if digest else ""
        self._target(target, f"sent = sent + ?, sent_at = ?, error = NULL, error_at = NULL{told}", len(rows), at)

    def not_sent(self, target: str, rows: Sequence[OutboxRow], error: str, *, arrived: bool, at: float) -> None:
        """Write why a send has failed; `arrived`: the messages may have arrived all the same."""
        if not arrived:
            # An earlier send of theirs may have arrived: that stays known.
            before = [(row.begun_at, row.number) for row in rows]
            self._db.executemany("UPDATE outbox SET begun_at = ? WHERE number = ?", before)
        self._target(target, "error = ?, error_at = ?", error, at)

    def _target(self, name: str, change: str, *values: Any) -> None:
        self._db.execute("INSERT OR IGNORE INTO outbox_targets (name) VALUES (?)", (name,))
        self._db.execute(f"UPDATE outbox_targets SET {change} WHERE name = ?", (*values, name))  # noqa: S608
