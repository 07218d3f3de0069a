"""Tests that a rule of the job file stops or retries a job while it still runs."""

import pytest

SCRIPT = "import time\nprint('step 1: the cooling has failed', flush=True)\ntime.sleep(600)\n"


@pytest.mark.parametrize(("action", "attempts"), [("stop", 1), ("retry", 2)])
def test_a_rule_ends_a_run_that_does_not_end_itself(lab, tmp_path, action, attempts):
    script = tmp_path / "source" / "sleepy.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    rule = {"name": "cooling", "pattern": "cooling has failed", "action": action}
    recovery = {"grace": 5, "infra_retries": 1, "rules": [rule]}
    history = lab.run(lab.write({"name": "sleepy", "run": "python sleepy.py", "recovery": recovery}, script))
    assert history["job"]["state"] == "FAILED" and "'cooling'" in history["job"]["reason"]
    assert [attempt["fault"]["kind"] for attempt in history["attempts"]] == [f"rule_{action}"] * attempts
