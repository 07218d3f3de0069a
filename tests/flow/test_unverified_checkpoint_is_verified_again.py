"""Tests that a checkpoint which could not be verified is not resumed from, and is verified again later."""

import shlex
import sys

import pytest


@pytest.mark.long
def test_an_unverified_checkpoint_is_verified_again_when_the_jobs_python_works(lab):
    shim = lab.folder / "python"
    shim.write_text(
        '#!/bin/sh\nif [ "$2" = rung_inside.verify ] && [ -e broken ]; then echo no memory today >&2; exit 9; fi\n'
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    shim.chmod(0o755)
    (lab.folder / "broken").touch()
    job = lab.job("data_bug", recovery={"ladder": ["fp32"]})
    job.write_text(job.read_text().replace("run: python", "run: ./python"))
    history = lab.run(job)
    second = history["attempts"][1]
    assert second["resumed_from"] is None
    assert "step_40.pt is unverified, no memory today" in second["because"]

    (lab.folder / "broken").unlink()
    lab.rung("retry", history["job"]["id"])
    lab.rung("controller", "--until-idle")
    third = lab.history(history["job"]["id"])["attempts"][2]
    assert third["resumed_from"] == "step_40.pt" and third["resumed_step"] == 40
