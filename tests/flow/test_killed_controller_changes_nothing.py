"""kill -9 at any moment: a restarted controller leads to the same end, no attempt twice, no event lost."""

import random
import time
from pathlib import Path

from rung.runner.state.store import Store

CATALOG = Path(__file__).parents[2] / "jobs" / "catalog" / "three-faults"
KILLS = 50
SEED = 20261115


def live(controller, store, chance):
    """Let a controller live for a moment of its start, or until it has written something and a moment longer.

    So the instants are spread over all that happens in a recovery, and none of them waits for something else than that.
    """
    if chance.random() < 0.4:
        seen = len(store.events())
        while len(store.events()) == seen and controller.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.3))
    else:
        time.sleep(chance.uniform(0.05, 1.0))


def outline(story):
    """Return what must not depend on when the controller was killed."""
    keys = ("number", "rung", "asked", "resumed_from", "resumed_step", "outcome", "skipped", "undone")
    return [{key: attempt[key] for key in keys} for attempt in story["attempts"]]


def test_fifty_kills_during_a_three_rung_recovery_change_nothing(lab):
    undisturbed = lab.run(CATALOG / "job.yaml")
    assert undisturbed["job"]["state"] == "SUCCEEDED"
    assert len({attempt["rung"] for attempt in undisturbed["attempts"]} - {None}) >= 3

    chance, store = random.Random(SEED), Store(lab.folder / "home" / "rung.db")
    stories, killed = [], 0
    while killed < KILLS:
        name = lab.submit(CATALOG / "job.yaml")
        # Several recoveries make up the fifty.
        while killed < KILLS:
            controller = lab.controller()
            live(controller, store, chance)
            if controller.poll() is not None:
                break
            controller.kill()
            controller.wait()
            killed += 1
        lab.rung("controller", "--until-idle")
        stories.append(lab.history(name))
    store.close()

    for story in stories:
        assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
        assert outline(story) == outline(undisturbed)
        assert_every_attempt_ran_once(lab, story)
        assert_no_event_is_missing(story, undisturbed)


def assert_every_attempt_ran_once(lab, story):
    for attempt in story["attempts"]:
        log = lab.log(story["job"]["id"], attempt["number"])
        assert log.count("rung| resumed ") == 1, f"attempt {attempt['number']} ran more than once"


# How far a faulty run goes on while no controller watches it depends on when the controller was killed. So does how
# many of its checkpoints are looked into, and whether there are newer ones to set aside.
DEPENDS_ON_THE_MOMENT = {"checkpoint", "set_aside"}


def assert_no_event_is_missing(story, undisturbed):
    def outline_of_events(history):
        return sorted(
            (str(event["attempt"]), event["kind"], str(event["data"].get("to")))
            for event in history["events"]
            # Nobody may have watched while an attempt was RUNNING or STOPPING.
            if event["kind"] not in DEPENDS_ON_THE_MOMENT and event["data"].get("to") not in ("RUNNING", "STOPPING")
        )

    assert outline_of_events(story) == outline_of_events(undisturbed)
