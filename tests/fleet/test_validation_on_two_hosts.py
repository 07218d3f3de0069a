"""Tests that a validation runs FP32 and FP16 at once where there are two hosts."""

from __future__ import annotations

import json

import yaml

from tests.fleet.campaign import Campaign

# Its loss falls, and ends 5 % worse in FP16. It takes long enough for both runs to overlap.
LEARNS = """
worse=0; [ "$1" = fp32 ] || worse=5
i=0; while [ $i -lt 15 ]; do i=$((i+1)); echo step $i loss 2.$((80-i))$worse; sleep 0.2; done
echo val_loss: 1.0$worse
"""


def test_both_runs_are_on_hosts_of_their_own_at_the_same_time(campaign: Campaign) -> None:
    spec = {
        "name": "gate",
        "image": campaign.fleet.images["tiny"],
        "run": ["sh", "-c", LEARNS, "sh", "{precision}"],
        "resources": {"gpu": ["A100:1", "TITANRTX:1", "P100:1"]},
        "knobs": {"precision": "amp_fp16"},
        "success": {"metric": "val_loss", "below": 2.0},
    }
    file = campaign.folder / "gate" / "job.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(spec))
    result = json.loads(campaign.rung("validate", "--json", file, expect=1))
    assert result["verdict"] == "FAIL"
    assert "val_loss 1.05 in amp_fp16, 1 in fp32: 5.00 % apart" in result["line"]
    runs = [campaign.attempts(job.id) for job in campaign.store.jobs()]
    (first,), (second,) = runs
    assert first.host != second.host and {first.host, second.host} <= set(campaign.fleet.hosts)
    assert max(first.started_at, second.started_at) < min(first.ended_at, second.ended_at)
