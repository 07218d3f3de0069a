"""Tests that every kind of event has a style, and which kinds `-f` shows."""

from __future__ import annotations

from rung.jobs.model.event import STYLES, EventKind, style_of


def test_every_kind_has_a_style() -> None:
    assert set(STYLES) == set(EventKind)


def test_kinds_that_say_little_to_a_person_are_not_followed() -> None:
    hidden = {kind for kind in EventKind if not style_of(kind).followed}
    assert hidden == {
        *("state", "started", "ended", "stepping_back", "cancel_requested"),
        *("no_checkpoint", "quarantined", "set_aside"),
    }


def test_an_unknown_kind_is_shown_by_its_data_and_not_followed() -> None:
    style = style_of("from_the_future")
    assert (style.followed, style.text({"a": 1, "b": 2})) == (False, "a=1, b=2")
