"""Tests that a controller killed between decision and relaunch, or before the first step, changes nothing."""

from collections import Counter
from pathlib import Path

from rung.runner.state.store import Store
from tests import pace
from tests.support.dying import (
    FIELDS,
    RUNGS,
    WANTED,
    assert_each_attempt_ran_once,
    kill_around_decisions,
    outline,
)


def test_a_controller_killed_right_after_a_decision_or_a_launch_changes_nothing(lab):
    file = lab.write({"name": "dying", **FIELDS}, Path(__file__).parent / "trainings" / "regression.py")
    undisturbed = lab.run(file)["job"]
    assert undisturbed["state"] == "SUCCEEDED", undisturbed["reason"]
    store = Store(lab.folder / "home" / "rung.db")
    wanted = outline(store.attempts(undisturbed["id"]))
    assert [attempt["rung"] for attempt in wanted] == RUNGS
    running, hits = [], Counter()

    def kill():
        running[-1].kill()
        running[-1].wait()

    for _ in range(3):
        job = lab.submit(file)
        hits += kill_around_decisions(store, job, lambda: running.append(lab.controller()), kill)
        pace.wait(running[-1], 60)
        assert outline(store.attempts(job)) == wanted
        assert_each_attempt_ran_once(store, job)
        for number in (1, 2, 3):
            assert lab.log(job, number).count("rung| knobs ") == 1, f"attempt {number} ran more than once"
        if min(hits["decided"], hits["started"]) >= WANTED:
            break
    assert min(hits["decided"], hits["started"]) >= WANTED, hits
    store.close()
