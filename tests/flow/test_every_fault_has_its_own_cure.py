"""Tests that the diagnosis picks the rung that cures: one relaunch for each of these faults."""

from pathlib import Path

import pytest

COOPERATIVE = Path(__file__).parent / "trainings" / "cooperative.py"


def cured(lab, flaw, steps=260, **fields):
    knobs = {"mode": "inside", "lr": 0.01, **fields.pop("knobs", {})}
    spec = {
        "name": flaw,
        "run": f"python cooperative.py --flaw {flaw} --steps {steps}",
        "knobs": knobs,
        "checkpoint": {"every": 20},
    }
    history = lab.run(lab.write({**spec, **fields}, COOPERATIVE))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    return history["attempts"]


@pytest.mark.long
def test_a_scale_that_thrashes_gets_a_longer_growth_interval(lab):
    first, second = cured(lab, "none", knobs={"growth_interval": 1})
    assert first["fault"]["kind"] == "scale_thrash"
    assert second["rung"] == "increase_growth_interval"
    assert second["effective"]["growth_interval"] == 2000
    assert second["resumed_step"] > 0


def test_a_scale_that_collapses_from_the_first_step_goes_to_a_wider_range(lab):
    first, second = cured(lab, "beyond_fp16")
    assert first["fault"]["kind"] == "scale_collapse"
    assert second["rung"] == "bf16" and second["effective"]["precision"] == "bf16"
    assert second["asked"]["lr"] == 0.01


@pytest.mark.long
def test_out_of_memory_lowers_the_batch_until_it_fits_also_where_it_is_odd(lab):
    # 16 MiB a sample: 81 of them do not fit into 1 GiB, 27 do.
    attempts = cured(lab, "too_large_a_batch", 25, knobs={"batch": 81}, resources={"memory": "1g"})
    assert [a["fault"]["kind"] for a in attempts[:-1]] == ["oom"] * (len(attempts) - 1)
    assert [a["rung"] for a in attempts[1:]] == ["lower_batch"] * (len(attempts) - 1)
    assert (attempts[1]["asked"]["batch"], attempts[1]["asked"]["accumulation"]) == (27, 3)
    assert all(a["asked"]["batch"] * (a["asked"]["accumulation"] or 1) == 81 for a in attempts)


@pytest.mark.long
def test_a_batch_that_cannot_fit_by_the_figures_of_the_message_is_not_launched(lab):
    # 4 GiB: halves of it do not fit into 1 GiB either, nor do quarters.
    attempts = cured(lab, "too_large_a_batch", 25, knobs={"batch": 256}, resources={"memory": "1g"})
    assert [a["asked"]["batch"] for a in attempts] == [256, 32]
    assert "so one of 128 cannot fit" in attempts[1]["because"]
