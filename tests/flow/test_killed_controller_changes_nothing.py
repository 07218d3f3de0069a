"""kill -9 at any moment: a restarted controller leads to the same end, no attempt twice, no event lost."""

import random
import subprocess
from pathlib import Path

CATALOG = Path(__file__).parents[2] / "jobs" / "catalog" / "three-faults"
KILLS = 50
SEED = 20261115


def outline(story):
    """Return what must not depend on when the controller was killed."""
    keys = ("number", "rung", "asked", "resumed_from", "resumed_step", "outcome", "skipped", "undone")
    return [{key: attempt[key] for key in keys} for attempt in story["attempts"]]


def test_fifty_kills_during_a_three_rung_recovery_change_nothing(lab):
    undisturbed = lab.run(CATALOG / "job.yaml")
    assert undisturbed["job"]["state"] == "SUCCEEDED"
    assert len({attempt["rung"] for attempt in undisturbed["attempts"]} - {None}) >= 3

    delays = random.Random(SEED)
    stories, killed = [], 0
    while killed < KILLS:
        name = lab.submit(CATALOG / "job.yaml")
        # Instants are spread over the whole of a recovery; several recoveries make up the fifty.
        while killed < KILLS:
            controller = lab.controller()
            try:
                controller.wait(timeout=delays.uniform(0.05, 4.0))
                break
            except subprocess.TimeoutExpired:
                controller.kill()
                controller.wait()
                killed += 1
        lab.rung("controller", "--until-idle")
        stories.append(lab.history(name))

    for story in stories:
        assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
        assert outline(story) == outline(undisturbed)
        assert_every_attempt_ran_once(lab, story)
        assert_no_event_is_missing(story, undisturbed)


def assert_every_attempt_ran_once(lab, story):
    for attempt in story["attempts"]:
        log = lab.log(story["job"]["id"], attempt["number"])
        assert log.count("rung| resumed ") == 1, f"attempt {attempt['number']} ran more than once"


def assert_no_event_is_missing(story, undisturbed):
    def told(of):
        return sorted(
            (str(event["attempt"]), event["kind"], str(event["data"].get("to")))
            for event in of["events"]
            # Whether somebody looked while an attempt was RUNNING or STOPPING, and how many files had to be looked
            # into, depends on when the controller was dead; everything else must be told.
            if event["kind"] != "checkpoint" and event["data"].get("to") not in ("RUNNING", "STOPPING")
        )

    assert told(story) == told(undisturbed)
