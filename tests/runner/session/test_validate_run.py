"""Tests that `rung validate` starts a controller in the background, which goes on with the validation by itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import closing

from rung.runner.state.store import Store
from rung.runner.validation.record import Validation, validations
from tests.support.background import Watched

# One step, then it waits for the test; the metric is the same in both precisions.
SCRIPT = """
echo "rung| knobs precision=$1"; echo "rung| step step=1 loss=0.5"
while [ ! -e "$GO" ]; do sleep 0.1; done
echo "rung| metric step=1 hmean=0.9"
"""


def asked(watched: Watched) -> Validation:
    with closing(Store(watched.paths.store)) as store:
        (found,) = validations(store)
    return found


def test_the_controller_is_another_process_and_decides_without_the_command(
    watched: Watched, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    run = ["sh", "-c", SCRIPT, "job", "{precision}"]
    command = spawn("validate", watched.job_file("ocr", run=run, success={"metric": "hmean", "above": 0.5}))
    watched.wait(lambda: watched.pid)
    assert watched.pid != command.pid
    watched.wait(lambda: asked(watched).baseline)
    command.kill()
    command.wait()
    watched.go.touch()
    watched.wait(lambda: asked(watched).verdict)
    assert asked(watched).verdict == "PASS"
    assert (watched.paths.validation(asked(watched).id) / "report.md").is_file()
