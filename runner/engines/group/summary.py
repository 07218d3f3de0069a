"""Says how an attempt on several hosts is, from what each of them has answered. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.runner.seams.engine import Observation, Presence

OVER = (Presence.ENDED, Presence.LOST)


@dataclass(frozen=True)
class Seen:
    """What one host has answered about its part; `asked_to_end`: it was told to end."""

    host: str
    observation: Observation
    asked_to_end: bool = False

    @property
    def presence(self) -> Presence:
        return self.observation.presence

    @property
    def failed(self) -> bool:
        return self.presence is Presence.LOST or (self.presence is Presence.ENDED and self.observation.exit_code != 0)


def current(seen: Sequence[Seen], *, begun: bool) -> Observation | None:
    """Return how the attempt is while it is not over; None: every part is. `begun`: all parts have been started."""
    for presence in (Presence.UNREACHABLE, Presence.WAITING):
        found = next((each for each in seen if each.presence is presence), None)
        if found is not None:
            return found.observation
    absent = [each for each in seen if each.presence is Presence.ABSENT]
    if len(absent) == len(seen) or (absent and not is_past_start(seen, begun=begun)):
        return Observation(Presence.ABSENT)
    running = [each.observation for each in seen if each.presence is Presence.RUNNING]
    if not running:
        return None
    return Observation(Presence.RUNNING, started_at=min(each.started_at or 0.0 for each in running) or None)


def is_past_start(seen: Sequence[Seen], *, begun: bool) -> bool:
    """Tell whether a part that is missing will not be started any more."""
    return begun or any(each.presence in OVER or each.asked_to_end for each in seen)


def is_broken(seen: Sequence[Seen], *, begun: bool) -> bool:
    """Tell whether the parts that still run must be ended: one has failed, or is gone."""
    is_gone = any(each.presence is Presence.ABSENT for each in seen) and is_past_start(seen, begun=begun)
    return is_gone or any(each.failed for each in seen)


def outcome(seen: Sequence[Seen]) -> Observation:
    """Return how an attempt ended of which every part is over: with the first failure that nobody had asked for."""
    ends = [each.observation.ended_at for each in seen if each.observation.ended_at is not None]
    starts = [each.observation.started_at for each in seen if each.observation.started_at is not None]
    whole = Observation(
        Presence.ENDED, exit_code=0, started_at=min(starts, default=None), ended_at=max(ends, default=None)
    )
    failed = sorted((each for each in seen if each.failed), key=_order)
    gone = next((each.host for each in seen if each.presence is Presence.ABSENT), None)
    if gone is not None and (not failed or failed[0].asked_to_end):
        return replace(whole, presence=Presence.LOST, exit_code=None, detail=f"its part on {gone} is gone")
    if not failed:
        return whole
    first = failed[0]
    detail = first.observation.detail
    named = detail if detail.startswith(first.host) else f"{first.host}: {detail}" if detail else ""
    return replace(first.observation, detail=named, started_at=whole.started_at, ended_at=whole.ended_at)


def _order(seen: Seen) -> tuple[bool, float]:
    ended_at = seen.observation.ended_at
    return seen.asked_to_end, ended_at if ended_at is not None else float("inf")
