"""Tests the kinds of events: which of them `-f` shows, and a kind that is unknown."""

from __future__ import annotations

from rung.jobs.model.event import EventKind, find_kind


def test_events_of_these_kinds_are_not_shown_while_following() -> None:
    assert {kind for kind in EventKind if not kind.followed} == {
        *("state", "started", "ended", "stepping_back", "cancel_requested"),
        *("no_checkpoint", "quarantined", "set_aside"),
    }


def test_a_kind_is_found_by_its_stored_name() -> None:
    assert all(find_kind(kind.value) is kind and str(kind) == kind.value for kind in EventKind)
    assert find_kind("stumbled") is EventKind.UNEXPECTED_ERROR
    assert find_kind("from_the_future") is None


def test_a_value_in_force_that_is_none_is_off() -> None:
    data = {"clip": {"asked": 1.0, "effective": None}, "lr": {"asked": 0.1, "effective": 0.2}}
    assert EventKind.NOT_TAKEN.describe(data) == "clip asked 1.0, effective off; lr asked 0.1, effective 0.2"
