"""Tests that a script which loads its newest snapshot by itself finds no poisoned one after a relaunch."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "trainings" / "selfloading.py"


@pytest.mark.parametrize(
    ("first_save", "resumed"), [(10, "step_30.pt"), pytest.param(40, None, marks=pytest.mark.long)]
)
def test_the_poisoned_snapshots_are_set_aside_before_the_relaunch(lab, first_save, resumed):
    run = f"python selfloading.py --dir {{checkpoint_dir}} --precision {{precision}} --first-save {first_save}"
    knobs, recovery = {"precision": "amp_fp16"}, {"ladder": ["fp32"]}
    spec = {"name": "selfloading", "run": run, "knobs": knobs, "recovery": recovery}
    history = lab.run(lab.write(spec, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    second = history["attempts"][1]
    assert (len(history["attempts"]), second["resumed_from"]) == (2, resumed)
    assert second["resumed_step"] == (30 if resumed else None)
    home = lab.folder / "home" / "jobs" / history["job"]["id"]
    poisoned = {f"step_{step}.pt" for step in (40, 50, 60)}
    assert poisoned <= {path.name for path in (home / ".set-aside" / "attempt-2").iterdir()}
    (set_aside,) = (event for event in history["events"] if event["kind"] == "set_aside")
    assert poisoned <= set(set_aside["data"]["files"]) and set_aside["attempt"] == 2
    order = [event["kind"] for event in history["events"] if event["attempt"] == 2]
    assert order.index("set_aside") < order.index("started")
