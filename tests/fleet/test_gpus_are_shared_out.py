"""Tests that jobs share the GPUs of real hosts: one job per GPU, in order, and a waiting job shows the reason."""

from __future__ import annotations

from rung.jobs.model.state import JobState
from tests.fleet.campaign import Campaign
from tests.fleet.host import ACCOUNT

ANY = ("TITANRTX:1", "P100:1", "A100:1")
# Fails if another job runs on the same host: every host has one GPU.
ALONE = "mkdir /slots/gpu || { echo two on one GPU; exit 3; }; echo step 1 loss 0.5; sleep 0.5; rmdir /slots/gpu"


def test_of_two_jobs_for_the_only_a100_the_second_waits_with_a_reason(campaign: Campaign) -> None:
    first, second = campaign.submit("first", "A100:1"), campaign.submit("second", "A100:1")
    campaign.control()
    campaign.wait(lambda: campaign.running(first))
    wanted = f"waits for an A100: ampere's only one is in use by {first}"
    campaign.wait(lambda: campaign.job(second).reason == wanted)
    assert campaign.job(second).state is JobState.QUEUED
    assert wanted in campaign.rung("queue", "--wide")
    campaign.finish(first)
    campaign.wait_for_end(first)
    campaign.wait(lambda: campaign.running(second))
    assert campaign.last(second).gpus[0].uuid == campaign.fleet.hosts["ampere"].gpu_uuid(0)
    campaign.finish(second)
    campaign.wait_for_end(second)
    assert campaign.store.leases() == []
    assert "attempt 1 on ampere (NVIDIA A100-SXM4-40GB)" in campaign.rung("history", second)


def test_twenty_jobs_on_three_hosts_all_end_and_no_gpu_ever_has_two(campaign: Campaign) -> None:
    for host in campaign.fleet.hosts.values():
        host.run("install", "--directory", "--owner", ACCOUNT, f"/home/{ACCOUNT}/slots")
    alone = {"run": ["sh", "-c", ALONE], "volumes": [f"/home/{ACCOUNT}/slots:/slots"]}
    jobs = [campaign.submit(f"j{number}", *ANY, **alone) for number in range(20)]
    campaign.control()
    campaign.wait(lambda: all(campaign.job(job).ended for job in jobs))
    assert {campaign.job(job).state for job in jobs} == {JobState.SUCCEEDED}, campaign.shown()
    assert [len(campaign.attempts(job)) for job in jobs] == [1] * 20
    assert {campaign.last(job).host for job in jobs} == set(campaign.fleet.hosts)
    assert not any("two on one GPU" in campaign.log(job, 1) for job in jobs)
    assert campaign.store.leases() == []


def test_a_gpu_with_a_foreign_process_is_not_taken(campaign: Campaign) -> None:
    ampere = campaign.fleet.hosts["ampere"]
    ampere.set_gpu_processes([(0, 812, "python")])
    job = campaign.submit("job", "A100:1")
    campaign.control()
    campaign.wait(lambda: "ampere's only one is in use by someone else (pid 812 python)" in campaign.job(job).reason)
    ampere.set_gpu_processes()
    campaign.wait(lambda: campaign.running(job))
    campaign.finish(job)
    campaign.wait_for_end(job)


def test_an_image_without_code_for_the_gpu_is_refused_and_the_next_request_is_used(campaign: Campaign) -> None:
    image = {"image": campaign.fleet.images["tiny-current"]}
    refused, other = campaign.submit("refused", "P100:1", **image), campaign.submit("other", "P100", "A100", **image)
    campaign.control()
    campaign.wait_for_end(refused, JobState.FAILED)
    assert campaign.attempts(refused) == []
    assert "Tesla P100-PCIE-16GB cannot run the image" in campaign.job(refused).reason
    campaign.wait(lambda: campaign.running(other))
    assert campaign.last(other).host == "ampere"
    campaign.finish(other)
    campaign.wait_for_end(other)


def test_dry_run_and_check_show_where_a_job_would_run_and_why_not_elsewhere(campaign: Campaign) -> None:
    job = campaign.submit("job", "A100:1")
    shown = campaign.rung("launch", campaign.folder / "job.yaml", "--dryrun")
    assert shown.startswith(f"host  ampere\nimage {campaign.fleet.images['tiny']}\n")
    assert campaign.fleet.hosts["ampere"].gpu_uuid(0) in shown
    found = campaign.rung("check", campaign.folder / "job.yaml", expect=None)
    assert "host ampere could run it, on NVIDIA A100-SXM4-40GB" in found
    assert "host pascal could not run it: it does not have an A100 (it has P100)" in found
    campaign.rung("cancel", job)
