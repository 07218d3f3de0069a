"""Tests trials with a real training whose lr is ten times too high: the losses decide, and nothing else is touched."""

from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "gauntlet" / "cases"
STEPS = 700


@pytest.mark.long
@pytest.mark.sample
def test_the_lr_that_learns_best_wins_and_its_run_goes_on(lab):
    script = CASES / "exploding_lr_sgd.py"
    spec = {
        "name": "trials",
        "run": f"python {script} --steps {STEPS} --out {{checkpoint_dir}} --resume {{checkpoint}}",
        "knobs": {"mode": "zero-edit"},
        "envs": {"OMP_NUM_THREADS": "1"},
        "recovery": {"trials": "on"},
    }
    history = lab.run(lab.write(spec, script))
    attempts = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED"

    tables = [event["data"]["table"] for event in history["events"] if event["kind"] == "trials"]
    (won,) = [row for row in tables[0] if row["verdict"] == "won"]
    assert won["rung"] == "lower_lr x0.1"
    assert all(row["loss"] is None or row["loss"] > won["loss"] for row in tables[0] if row is not won)

    trials = [attempt for attempt in attempts if attempt["trial"]]
    assert len({attempt["stay"] for attempt in trials}) == len(trials) >= 2
    for attempt in trials:
        trial = attempt["trial"]
        # Those with nothing to win against end by themselves when the next step begins, before the controller sees it.
        if not trial["may_go_on"]:
            assert attempt["furthest_step"] <= trial["until"] + 1
    last = attempts[-1]
    # When its loss is level, a lower lr may win against it. A look that comes when the run has just made its last step
    # lets it go on from there, with no step left to make.
    assert last["asked"]["lr"] <= 0.01 and STEPS in (last["furthest_step"], last["resumed_step"])
    # A healthy run comes to 1.12.
    assert last["metrics"]["val_loss"] < 1.2

    # Only the folders in which winners went on are left, and the logs of all.
    kept = {path.name for path in (lab.folder / "home" / "jobs").glob("*/stays/*")}
    won_in = {str(attempt["stay"]) for attempt in trials if attempt["trial"]["won"]}
    # A lower lr that won a look early in the run began from scratch, in the job's own folder.
    own = {str(attempt["stay"]) for attempt in attempts if not attempt["trial"] or attempt["trial"]["goes_on"]}
    assert kept == won_in & own
    assert len(list((lab.folder / "home" / "jobs").glob("*/attempts/*/log"))) == len(attempts)
    text = lab.rung("history", "trials")
    assert "RUNG" in text and "MS A STEP" in text and "won the trials with a loss of" in text
