"""Tests a script in a container that overwrites its one checkpoint file: versions are kept on the host.

Two jobs run side by side, one for each way in which versions are made. They run once, and every test checks one result.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet

SCRIPT = Path(__file__).parents[1] / "flow" / "trainings" / "one_file.py"
# A host tells saves of one size apart by the second in which they were written.
START = "python one_file.py --out_dir {checkpoint_dir} --pause 1.1"
RESUME = f"{START} --init_from=resume"
FIELDS: dict[str, Any] = {
    "checkpoint": {"pattern": "ckpt.pt"},
    "recovery": {"ladder": [{"raise_clip": [1.0]}], "trials": "off", "early_warning": "off"},
}
BY_FLAGS = "{} --grad_clip={{clip}}"


def iteration(path: Path) -> int:
    """Return the step in a checkpoint; fail if its weights are not finite."""
    state = torch.load(path, weights_only=True)
    assert all(each.isfinite().all() for each in state["model"].values()), path
    return int(state["iter_num"])


class OneFile:
    """A job whose versions are made inside, by zero-edit, and one whose versions are made beside the command."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        inside = {"run": START, "run_on_resume": RESUME, "knobs": {"mode": "zero-edit"}}
        beside = {"run": BY_FLAGS.format(START), "run_on_resume": BY_FLAGS.format(RESUME), "knobs": {"clip": "off"}}
        self.inside = self._submit("inside", "A100:1", **inside)
        self.beside = self._submit("beside", "P100:1", **beside)
        campaign.control()
        self.attempts = {job: campaign.wait_for_end(job) for job in (self.inside, self.beside)}

    def _submit(self, name: str, gpu: str, **fields: Any) -> str:
        folder = self.campaign.folder / f"work-{name}"
        folder.mkdir()
        shutil.copy(SCRIPT, folder)
        return self.campaign.submit(name, gpu, image=self.campaign.fleet.images["train"], **FIELDS, **fields)

    def folder(self, job: str) -> Path:
        """Return the folder of a job on its host."""
        last: Attempt = self.attempts[job][-1]
        return self.campaign.fleet.hosts[last.host].work / f".rung/{self.campaign.store.store_id}/jobs/{job}"

    def checkpoints(self, job: str) -> Path:
        return self.folder(job) / "stays/1/checkpoints"

    def names(self, job: str) -> list[str]:
        return sorted(path.name for path in self.checkpoints(job).glob("[!.]*"))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, whole_fleet: Fleet) -> Iterator[Campaign]:
    made = Campaign(tmp_path_factory.mktemp("one-file"), whole_fleet)
    yield made
    made.close()
    whole_fleet.restore()


@pytest.fixture(scope="module")
def ran(campaign: Campaign) -> OneFile:
    return OneFile(campaign)


def test_the_relaunch_goes_on_from_the_version_before_the_fault(ran: OneFile) -> None:
    first, second = ran.attempts[ran.inside]
    assert first.is_remote and first.fault is not None and first.fault.kind is FaultKind.NAN_LOSS
    # The saves of step 50 and 60 hold NaN: no version is made of them.
    assert (second.resumed_from, second.planned_step) == ("ckpt.rung-step-40.pt", 40)
    assert (second.resumed_step, second.not_resumed) == (40, None)
    assert "rung| resumed step=40 file=ckpt.pt" in ran.campaign.log(ran.inside, 2)


def test_a_version_that_is_made_beside_the_command_is_put_back_too(ran: OneFile) -> None:
    _, second = ran.attempts[ran.beside]
    # A machine that is busy may not see every save.
    assert second.resumed_from is not None and second.resumed_from.startswith("ckpt.rung-t")
    assert second.planned_step in (10, 20, 30, 40) and second.not_resumed is None
    assert second.first_step is not None and second.first_step >= second.planned_step


def test_versions_lie_beside_the_file_on_the_host_and_the_file_is_the_last_save(ran: OneFile) -> None:
    for job, kind in ((ran.inside, "ckpt.rung-step-"), (ran.beside, "ckpt.rung-t")):
        file, *versions = ran.names(job)
        assert file == "ckpt.pt" and all(name.startswith(kind) for name in versions)
        assert 1 <= len(versions) <= 5
        folder = ran.checkpoints(job)
        assert iteration(folder / file) == 120
        assert all(iteration(folder / name) % 10 == 0 for name in versions)
    steps = {name: iteration(ran.checkpoints(ran.inside) / name) for name in ran.names(ran.inside)[1:]}
    assert {name: f"ckpt.rung-step-{step}.pt" for name, step in steps.items()} == {name: name for name in steps}


def test_the_poisoned_file_is_set_aside_and_not_lost(ran: OneFile) -> None:
    for job in (ran.inside, ran.beside):
        (aside,) = (ran.folder(job) / "set-aside").rglob("ckpt.pt")
        weights = torch.load(aside, weights_only=True)["model"]
        assert not all(each.isfinite().all() for each in weights.values())
