"""Tests that checkpoints on a host are found and verified there, also when its disk was full."""

from __future__ import annotations

from functools import partial

from rung.recovery.detect.detector import Detector
from rung.runner.checkpoints.verify import verify_enough
from rung.runner.files.log_file import read_lines
from rung.runner.seams.engine import Presence, Request
from tests.fleet.containers.conftest import Attempts

PATTERN = "step_*.pt"
# Saved directly under its name, as many scripts do, so a full disk leaves a truncated file.
TRAIN = """
import os, sys, time, torch
folder = os.environ["RUNG_CHECKPOINT_DIR"]
torch.save({"step": 100, "w": torch.zeros(1000)}, folder + "/step_100.pt")
print("step 100 saved", flush=True)
while not os.path.exists(folder + "/go"):
    time.sleep(0.05)
torch.save({"step": 200, "w": torch.zeros(40 << 18)}, folder + "/step_200.pt")
"""


def test_a_checkpoint_that_a_full_disk_cut_short_is_not_resumed_from(attempts: Attempts) -> None:
    (attempts.source / "train.py").write_text(TRAIN)
    env = {"RUNG_CHECKPOINT_DIR": "/rung/job/checkpoints"}
    request: Request = attempts.start("python", "train.py", image="train", env=env)
    attempts.wait_for_log(request, "step 100 saved")
    attempts.host.fill_disk(leave=4 << 20)
    (attempts.checkpoints() / "go").touch()
    end = attempts.end(request)
    # There was still room for the small record of the end.
    assert end.presence is Presence.ENDED
    assert end.exit_code not in (0, None)
    detector = Detector(())
    for line in read_lines(request.paths.log):
        detector.feed(line)
    fault = detector.first_fault(ended=True)
    assert fault is not None
    assert fault.kind == "infra_fault"
    names = {entry.name: entry for entry in attempts.engine.list_files(request, PATTERN)}
    assert set(names) == {"step_100.pt", "step_200.pt"}
    listing = partial(attempts.engine.list_files, request, PATTERN)
    verdicts = dict(verify_enough(attempts.engine, request, listing, [], None, {}))
    found = {name: verdicts[entry.fingerprint].verdict for name, entry in names.items()}
    assert found == {"step_100.pt": "healthy", "step_200.pt": "truncated"}
    attempts.wait(lambda: attempts.containers() == [], "all containers are gone")
