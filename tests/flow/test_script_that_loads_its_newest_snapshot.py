"""Tests a relaunch whose script loads the newest snapshot by itself: it finds no bad one."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "trainings" / "selfloading.py"


@pytest.mark.parametrize(
    ("first_save", "resumed"), [(10, "step_30.pt"), pytest.param(40, None, marks=pytest.mark.long)]
)
def test_it_does_not_find_the_poisoned_ones_that_rung_stepped_over(lab, first_save, resumed):
    run = f"python selfloading.py --dir {{checkpoint_dir}} --precision {{precision}} --first-save {first_save}"
    knobs, recovery = {"precision": "amp_fp16"}, {"ladder": ["fp32"]}
    spec = {"name": "selfloading", "run": run, "knobs": knobs, "recovery": recovery}
    story = lab.run(lab.write(spec, SCRIPT))
    assert story["job"]["state"] == "SUCCEEDED", story["job"]["reason"]
    second = story["attempts"][1]
    assert (len(story["attempts"]), second["resumed_from"]) == (2, resumed)
    assert second["resumed_step"] == (30 if resumed else None)
    home = lab.folder / "home" / "jobs" / story["job"]["id"]
    poisoned = {f"step_{step}.pt" for step in (40, 50, 60)}
    assert poisoned <= {path.name for path in (home / ".set-aside" / "attempt-2").iterdir()}
    (told,) = (event for event in story["events"] if event["kind"] == "set_aside")
    assert poisoned <= set(told["data"]["files"]) and told["attempt"] == 2
    order = [event["kind"] for event in story["events"] if event["attempt"] == 2]
    assert order.index("set_aside") < order.index("started")
