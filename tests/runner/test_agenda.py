"""Tests that what is due is given once, at its time, and wakes a loop that sleeps."""

from __future__ import annotations

import threading

from rung.runner.agenda import Agenda
from rung.runner.task_pool import TaskPool
from tests import pace


class Clock:
    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


def test_what_is_woken_is_due_once() -> None:
    agenda = Agenda(Clock())
    agenda.wake("a")
    agenda.wake("b")
    agenda.wake("a")
    assert agenda.take() == {"a", "b"}
    assert agenda.take() == set()


def test_a_key_is_due_at_the_earliest_of_its_times_and_only_then() -> None:
    clock = Clock()
    agenda = Agenda(clock)
    for at in (30.0, 12.0, 20.0):
        agenda.wake_by("a", at)
    clock.now = 11.9
    assert agenda.take() == set()
    clock.now = 12.0
    assert agenda.take() == {"a"}
    clock.now = 100.0
    assert agenda.take() == set(), "the later times of a key mean nothing once it had its turn"


def test_a_turn_before_its_time_takes_the_time_away() -> None:
    clock = Clock()
    agenda = Agenda(clock)
    agenda.wake_by("a", 12.0)
    agenda.wake("a")
    assert agenda.take() == {"a"}
    clock.now = 13.0
    assert agenda.take() == set()
    agenda.wake_by("a", 14.0)
    clock.now = 14.0
    assert agenda.take() == {"a"}


def test_a_loop_that_sleeps_is_woken_by_a_task_that_is_done() -> None:
    agenda = Agenda()
    tasks, go_on, woken = TaskPool(agenda.wake), threading.Event(), threading.Event()

    def sleep() -> None:
        while "job" not in agenda.take():
            agenda.wait(3600.0)
        woken.set()

    tasks.submit("mirror job", "host", go_on.wait, wakes="job")
    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    assert not woken.is_set() and tasks.take("mirror job") is None
    go_on.set()
    pace.until(woken.is_set, 60)
    assert tasks.take("mirror job") is not None
    tasks.close()


def test_a_loop_does_not_sleep_while_something_is_due() -> None:
    agenda = Agenda()
    agenda.wake("a")
    agenda.wait(3600.0)
    assert agenda.take() == {"a"}
