"""Whole recoveries that are the same on every engine: one suite, run once for each of them.

A folder of tests that has an engine gives the fixture `place` and a subclass of `Stories`. What only one engine has
stays in tests of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.engine import EndedBy, EngineKind

FLOW = Path(__file__).parents[1] / "flow"


class Place(Protocol):
    """An engine with all that it needs, where jobs can be run."""

    engine: EngineKind

    def run(self, name: str, script: Path, **fields: Any) -> tuple[str, list[Attempt]]:
        """Run a training, `script` as train.py, until it succeeds; return its job and its attempts."""

    def log(self, job: str, attempt: int) -> str: ...


class Stories:
    def test_a_run_that_hangs_shows_its_stacks_and_goes_on_from_its_last_checkpoint(self, place: Place) -> None:
        job, (first, second) = place.run(
            "hangs",
            FLOW / "trainings" / "hangs.py",
            run="python train.py",
            knobs={"mode": "zero-edit"},
            # Longer than any step takes on a busy machine. One attempt: the relaunch is on the budget of the machine.
            recovery={"stalled": "15s", "max_attempts": 1},
        )
        assert first.fault is not None and (first.fault.kind, first.fault.step) == ("stalled", 30)
        assert first.fault.evidence.startswith("no sign of life for ")
        assert first.fault.evidence.endswith(" s, longer than recovery.stalled (15 s)")
        assert first.fault.note.startswith("it stands at train.py:18 in wait_for_ever; the stacks of all threads")
        assert (second.rung, second.resumed_from, second.resumed_step, second.fault) == (None, "step_30.pt", 30, None)
        assert "no rung cures a run that hangs; the same knobs again" in second.because
        log = place.log(job, 1)
        assert log.index("rung: no sign of life; the stacks") < log.rindex("in wait_for_ever")
        assert log.rindex("in wait_for_ever") > log.index("step 30 loss")
        assert (first.engine, first.ended_by) == (place.engine, None)
        assert (second.engine, second.ended_by) == (place.engine, EndedBy.ITSELF)

    def test_zero_edit_cures_a_script_that_redirects_its_output_to_a_file(self, place: Place) -> None:
        job, (first, cured) = place.run(
            "stranger",
            FLOW / "strangers" / "torch_mask.py",
            run=["sh", "-c", "python train.py > out.txt 2>&1"],
            knobs={"mode": "zero-edit"},
        )
        assert first.fault is not None and first.fault.kind == "fp16_overflow"
        assert "train.py" in first.fault.source
        assert cured.rung == "clamp_constants" and cured.effective["precision"] == "amp_fp16"
        assert cured.furthest_step == 200
        log = place.log(job, 2)
        assert all(line.startswith("rung| ") for line in log.splitlines()), log[:2000]

    @pytest.mark.long
    def test_a_relaunch_steps_over_poisoned_checkpoints_and_proves_its_step(self, place: Place) -> None:
        _, (first, second) = place.run(
            "poisoned",
            FLOW / "trainings" / "regression.py",
            run="python train.py --flaw weights_nan --lr {lr} --precision {precision} --dir {checkpoint_dir} "
            "--resume {checkpoint} --log-every 80 --steps 160",
            knobs={"lr": 0.05},
            recovery={"ladder": ["fp32"], "trials": "off"},
        )
        # The weights are NaN from step 41 on, and the log shows it at step 80.
        assert first.fault is not None and (first.fault.kind, first.fault.step) == ("nan_loss", 80)
        assert (second.rung, second.resumed_from, second.resumed_step) == ("fp32", "step_40.pt", 40)
        poisoned = ", ".join(f"step_{step}.pt is poisoned" for step in (70, 60, 50))
        assert f"stepped over: {poisoned}" in second.because
        assert (second.furthest_step, second.not_resumed) == (160, None)

    @pytest.mark.long
    def test_a_script_that_never_saves_goes_on_from_what_rung_has_saved(self, place: Place) -> None:
        _, (first, second) = place.run(
            "unsaved",
            FLOW / "trainings" / "never_saves.py",
            run="python train.py",
            knobs={"mode": "zero-edit"},
            checkpoint={"by": "rung", "every": 10},
            recovery={"ladder": [{"raise_clip": [1.0]}], "trials": "off", "early_warning": "off"},
        )
        assert first.fault is not None and first.fault.kind == "nan_loss"
        assert (second.rung, second.effective["clip"]) == ("raise_clip", 1.0)
        assert (second.resumed_from, second.planned_step) == ("rung-step-40.pt", 40)
        assert (second.resumed_step, second.first_step, second.furthest_step) == (40, 41, 120)
        assert (second.not_resumed, second.not_whole) == (None, None)
