"""Tests trials with a real training whose right lr lies between two tenths: the one between them wins and goes on."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "gauntlet" / "cases" / "family.py"
# The lr is 500 times too high: a thousandth is half of the right one, and a hundredth fails at once.
FLAGS = "--model gpt --optimizer sgd --lr-times 500 --log silent --steps 300"


@pytest.mark.long
def test_twice_the_lr_of_a_winner_that_learns_slowly_goes_on(lab):
    spec = {
        "name": "between",
        "run": f"python {SCRIPT} {FLAGS} --out {{checkpoint_dir}} --resume {{checkpoint}}",
        "knobs": {"mode": "zero-edit"},
        "envs": {"OMP_NUM_THREADS": "1"},
    }
    history = lab.run(lab.write(spec, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED"
    (table,) = [event["data"]["table"] for event in history["events"] if event["kind"] == "trials"]
    # A lower lr that fails later shows that the lr is the cause, so no clip is tried.
    assert [row["rung"] for row in table] == ["lower_lr x0.01", "lower_lr x0.001", "lower_lr x0.002"]
    failed, slow, won = table
    assert failed["loss"] is None and won["verdict"] == "won" and won["loss"] < 0.95 * slow["loss"]
    last = history["attempts"][-1]
    assert (last["number"], last["asked"]["lr"], last["furthest_step"]) == (4, 0.8, 300)
    assert "lower_lr x0.002" in lab.rung("history", "between")
