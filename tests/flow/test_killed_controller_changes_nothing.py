"""Tests kill -9 at any moment: a restarted controller gets the same result, with no attempt twice and no event lost."""

import random
import time
from pathlib import Path

import pytest

from rung.runner.state.store import Store

CATALOG = Path(__file__).parents[2] / "jobs" / "catalog" / "three-faults"
KILLS = 50
SEED = 20261115


def wait_for_a_moment_to_kill(controller, store, chance):
    """Wait for a random time after the start of a controller, or after its next event.

    The kills must come at random moments of a recovery, so these sleeps wait for no condition.
    """
    if chance.random() < 0.4:
        seen = len(store.events())
        while len(store.events()) == seen and controller.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.3))
    else:
        time.sleep(chance.uniform(0.05, 1.0))


def outline(history):
    """Return what must not depend on when the controller was killed."""
    keys = ("number", "rung", "asked", "resumed_from", "resumed_step", "outcome", "skipped", "undone")
    return [{key: attempt[key] for key in keys} for attempt in history["attempts"]]


@pytest.mark.long
@pytest.mark.sample
def test_fifty_kills_during_a_three_rung_recovery_change_nothing(lab):
    undisturbed = lab.run(CATALOG / "job.yaml")
    assert undisturbed["job"]["state"] == "SUCCEEDED"
    assert len({attempt["rung"] for attempt in undisturbed["attempts"]} - {None}) >= 3

    chance, store = random.Random(SEED), Store(lab.folder / "home" / "rung.db")
    histories, killed = [], 0
    while killed < KILLS:
        name = lab.submit(CATALOG / "job.yaml")
        # One recovery is too short for fifty kills, so there are several.
        while killed < KILLS:
            controller = lab.controller()
            wait_for_a_moment_to_kill(controller, store, chance)
            if controller.poll() is not None:
                break
            controller.kill()
            controller.wait()
            killed += 1
        lab.rung("controller", "--until-idle")
        histories.append(lab.history(name))
    store.close()

    for history in histories:
        assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
        assert outline(history) == outline(undisturbed)
        assert_every_attempt_ran_once(lab, history)
        assert_no_event_is_missing(history, undisturbed)


def assert_every_attempt_ran_once(lab, history):
    for attempt in history["attempts"]:
        log = lab.log(history["job"]["id"], attempt["number"])
        assert log.count("rung| resumed ") == 1, f"attempt {attempt['number']} ran more than once"


# The moment of a kill decides how far a faulty run goes on without a controller, and so how many of its checkpoints are
# verified and set aside.
DEPENDS_ON_THE_MOMENT = {"checkpoint", "set_aside"}


def assert_no_event_is_missing(history, undisturbed):
    def outline_of_events(history):
        return sorted(
            (str(event["attempt"]), event["kind"], str(event["data"].get("to")))
            for event in history["events"]
            # An attempt can be RUNNING or STOPPING while there is no controller.
            if event["kind"] not in DEPENDS_ON_THE_MOMENT and event["data"].get("to") not in ("RUNNING", "STOPPING")
        )

    assert outline_of_events(history) == outline_of_events(undisturbed)
