"""Tests the scheduler: no GPU is given twice, first come first served, every job gets a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.engine import DOCKER, PROCESS, PlacedBy
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.spec.resources import GpuRequest
from rung.runner.placement.places import HostView, MustWait, Placed, PlacementResult, Refused, Slot, WaitingJob
from rung.runner.placement.scheduler import candidates, place

IMAGE = f"train@sha256:{'0' * 64}"
KINDS = {"TITANRTX": ("NVIDIA TITAN RTX", (7, 5), 24), "P100": ("Tesla P100-PCIE-16GB", (6, 0), 16)}
KINDS |= {"A100": ("NVIDIA A100-SXM4-40GB", (8, 0), 40)}


def gpu(kind: str, host: str, index: int = 0) -> Gpu:
    name, capability, memory = KINDS[kind]
    return Gpu(name, capability, index, f"GPU-{host}-{index}", memory << 30)


def view(
    name: str, *kinds: str, trouble: str = "", processes: Mapping[int, str] | None = None, load: int = 0
) -> HostView:
    host = Host(name, name, groups=tuple(kind.lower() for kind in kinds))
    slots = tuple(Slot(gpu(kind, name, i), (processes or {}).get(i, "")) for i, kind in enumerate(kinds))
    return HostView(host, slots, trouble, load)


def wants(job: str, *requests: str | dict[str, object], **fields: object) -> WaitingJob:
    return WaitingJob(
        job, tuple(GpuRequest.model_validate(request) for request in requests), **{"image": IMAGE, **fields}
    )  # type: ignore[arg-type]


def fits(image: str, gpu: Gpu) -> str | None:
    return None


def no_pascal(image: str, gpu: Gpu) -> str | None:
    return "it has no code for sm_60" if gpu.capability < (7, 0) else None


FLEET = [view("turing", "TITANRTX"), view("pascal", "P100"), view("ampere", "A100")]


def one(result: Sequence[PlacementResult]) -> PlacementResult:
    (only,) = result
    return only


def test_a_job_takes_the_first_acceptable_gpu_in_its_own_order() -> None:
    placed = one(place([wants("a", "P100", "A100", "TITANRTX")], FLEET, {}, fits))
    assert placed == Placed("a", "pascal", (gpu("P100", "pascal"),), IMAGE, DOCKER)
    second = one(place([wants("a", "P100", "A100", "TITANRTX")], FLEET, {("pascal", "GPU-pascal-0"): "b"}, fits))
    assert isinstance(second, Placed) and second.host == "ampere"


def test_of_two_jobs_for_one_gpu_the_second_waits_with_a_reason() -> None:
    first, second = place([wants("a-1", "A100"), wants("b-2", "A100")], FLEET, {}, fits)
    assert isinstance(first, Placed)
    assert second == MustWait("b-2", "waits for an A100: ampere's only one is in use by a-1")


def test_a_waiting_job_does_not_block_a_job_that_needs_another_gpu() -> None:
    results = place([wants("a", "A100"), wants("b", "P100")], FLEET, {("ampere", "GPU-ampere-0"): "x"}, fits)
    assert [type(result) for result in results] == [MustWait, Placed]


def test_higher_priority_goes_first_and_equals_in_the_order_they_came() -> None:
    waiting = [wants("a", "A100"), wants("b", "A100", priority=5), wants("c", "A100", priority=5)]
    assert [type(result) for result in place(waiting, FLEET, {}, fits)] == [MustWait, Placed, MustWait]


def test_a_gpu_with_a_foreign_process_is_not_taken() -> None:
    busy = [view("ampere", "A100", processes={0: "pid 812 python"})]
    result = one(place([wants("a", "A100")], busy, {}, fits))
    assert result == MustWait("a", "waits for an A100: ampere's only one is in use by someone else (pid 812 python)")


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        ([], "waits for an A100: the list of hosts is empty"),
        (FLEET[:2], "waits for an A100: no host that answers has one"),
        ([view("ampere", "A100", trouble="is unreachable")], "waits for an A100: ampere is unreachable"),
        ([view("ampere", "A100", trouble="has a full disk")], "waits for an A100: ampere has a full disk"),
        (
            [HostView(Host("ampere", "x", groups=("a100",)), (), "has not been checked yet"), FLEET[0]],
            "waits for an A100: ampere has not been checked yet",
        ),
    ],
)
def test_the_reason_names_the_obstacles(views: list[HostView], reason: str) -> None:
    assert one(place([wants("a", "A100")], views, {}, fits)) == MustWait("a", reason)


def test_an_incompatible_gpu_means_the_next_request() -> None:
    placed = one(place([wants("a", "P100", "A100")], FLEET, {}, no_pascal))
    assert isinstance(placed, Placed) and placed.host == "ampere"


def test_a_job_is_refused_if_every_gpu_it_accepts_is_incompatible() -> None:
    result = one(place([wants("a", "P100")], FLEET, {}, no_pascal))
    assert result == Refused("a", "Tesla P100-PCIE-16GB cannot run the image: it has no code for sm_60")
    unseen = [*FLEET, HostView(Host("other", "x"), (), "is unreachable")]
    assert isinstance(one(place([wants("a", "P100")], unseen, {}, no_pascal)), MustWait)


def test_a_map_of_images_gives_each_gpu_its_own() -> None:
    images = {"A100": f"a@sha256:{'1' * 64}", "P100": f"p@sha256:{'2' * 64}"}
    placed = one(place([wants("a", "P100", image=images)], FLEET, {}, fits))
    assert isinstance(placed, Placed) and placed.image == images["P100"]
    assert isinstance(one(place([wants("a", "TITANRTX", image=images)], FLEET, {}, fits)), Refused)


def test_several_gpus_are_of_one_host_and_one_type() -> None:
    mixed = [view("a", "A100", "P100"), view("b", "P100", "A100", "A100")]
    placed = one(place([wants("j", {"capability": ">=6.0", "count": 2})], mixed, {}, fits))
    assert isinstance(placed, Placed) and placed.host == "b"
    assert [each.type for each in placed.gpus] == ["A100", "A100"]


def test_small_jobs_do_not_overtake_a_big_one_for_ever() -> None:
    two = [view("a", "A100", "A100")]
    big, small = place([wants("big", "A100:2"), wants("small", "A100")], two, {("a", "GPU-a-0"): "old"}, fits)
    assert isinstance(big, MustWait) and "GPU" not in big.reason
    assert small == MustWait(
        "small", "waits for an A100: a's A100 0 is in use by old; a's A100 1 is kept for big, which waits for 2"
    )


def test_a_big_job_that_no_host_can_ever_hold_reserves_nothing() -> None:
    results = place([wants("big", "A100:3"), wants("small", "A100")], [view("a", "A100", "A100")], {}, fits)
    assert [type(result) for result in results] == [MustWait, Placed]


def test_a_job_that_requests_no_gpu_goes_to_the_host_with_the_least_load() -> None:
    views = [view("a", "A100", load=2), view("b", load=1)]
    first, second = place([wants("x"), wants("y")], views, {("a", "GPU-a-0"): "z"}, fits)
    assert (first, second) == (Placed("x", "b", (), IMAGE, DOCKER), Placed("y", "a", (), IMAGE, DOCKER))


def test_a_job_stays_on_the_host_with_its_files_unless_that_is_avoided() -> None:
    pair = [view("a", "A100"), view("b", "A100")]
    near = one(place([wants("j", "A100", near="b")], pair, {}, fits))
    assert isinstance(near, Placed) and near.host == "b"
    away = one(place([wants("j", "A100", near="b", avoid={"b": "is avoided"})], pair, {}, fits))
    assert isinstance(away, Placed) and away.host == "a"
    alone = one(place([wants("j", "A100", avoid={"a": "is avoided after 2 faults"})], pair[:1], {}, fits))
    assert alone == MustWait("j", "waits for an A100: a is avoided after 2 faults")


def test_candidates_include_hosts_that_are_in_use() -> None:
    views = [*FLEET, view("ampere-2", "A100", trouble="is unreachable")]
    assert candidates(wants("j", "A100", "P100"), views, fits) == ["pascal", "ampere"]
    assert candidates(wants("j", "A100", "P100"), views, no_pascal) == ["ampere"]
    assert candidates(wants("j"), views, fits) == ["turing", "pascal", "ampere"]


kinds = st.sampled_from(sorted(KINDS))
requests = st.builds(lambda kind, count: f"{kind}:{count}", kinds, st.integers(1, 2))
jobs = st.lists(st.tuples(st.lists(requests, max_size=3), st.integers(0, 2)), max_size=12)
hosts = st.lists(st.tuples(st.lists(kinds, max_size=4), st.booleans(), st.booleans()), max_size=4)


def made(
    asked: list[tuple[list[str], int]], there: list[tuple[list[str], bool, bool]]
) -> tuple[list[WaitingJob], list[HostView]]:
    waiting = [wants(f"j{i}", *request, priority=priority) for i, (request, priority) in enumerate(asked)]
    views = [
        view(f"h{i}", *names, trouble="is unreachable" if away else "", processes={0: "pid 1"} if busy else {})
        for i, (names, away, busy) in enumerate(there)
    ]
    return waiting, views


@given(jobs, hosts)
def test_no_gpu_is_given_twice_and_every_job_gets_a_result(
    asked: list[tuple[list[str], int]], there: list[tuple[list[str], bool, bool]]
) -> None:
    waiting, views = made(asked, there)
    results = place(waiting, views, {("h0", "GPU-h0-1"): "old"}, fits)
    given_out = [each.uuid for result in results if isinstance(result, Placed) for each in result.gpus]
    assert len(given_out) == len(set(given_out))
    assert "GPU-h0-1" not in given_out
    forbidden = {slot.gpu.uuid for s in views for slot in s.slots if slot.foreign_process or s.trouble}
    assert not forbidden & set(given_out)
    for job, result in zip(waiting, results, strict=True):
        assert result.job == job.job
        if isinstance(result, Placed):
            kept = [
                request
                for request in job.requests
                if len(result.gpus) == request.count and request.fits(result.gpus[0])
            ]
            assert kept or not job.requests
        else:
            assert result.reason and "\n" not in result.reason and not result.reason.endswith(": ")


@given(jobs, hosts)
def test_no_job_is_overtaken_by_a_later_equal_one(
    asked: list[tuple[list[str], int]], there: list[tuple[list[str], bool, bool]]
) -> None:
    waiting, views = made(asked, there)
    results = place(waiting, views, {}, fits)
    for i, early in enumerate(waiting):
        for j in range(i + 1, len(waiting)):
            late = waiting[j]
            if early.requests == late.requests and early.priority == late.priority and isinstance(results[i], MustWait):
                assert isinstance(results[j], MustWait)


@given(jobs, hosts)
def test_no_job_starves_while_others_end(
    asked: list[tuple[list[str], int]], there: list[tuple[list[str], bool, bool]]
) -> None:
    """Every job that can run does run in the end, even if new jobs for one GPU keep coming."""
    waiting, views = made(asked, there)
    able = {job.job for job in waiting if candidates(job, views, fits)}
    running: list[Placed] = []
    for late in range(4 * len(waiting) + 4):
        # One ends and one more comes, each turn.
        running = running[1:]
        waiting = [*waiting, wants(f"late{late}", "A100:1", "P100:1", "TITANRTX:1")]
        leases = {(placed.host, each.uuid): placed.job for placed in running for each in placed.gpus}
        results = place(waiting, views, leases, fits)
        started = [result for result in results if isinstance(result, Placed)]
        running += started
        waiting = [job for job in waiting if job.job not in {placed.job for placed in started}]
        able -= {placed.job for placed in started}
        if not able:
            return
    assert not able


SITE = replace(DOCKER, name="site", placed_by=PlacedBy.SITE)


def test_a_host_takes_only_jobs_that_its_engine_takes() -> None:
    here = HostView(Host("here", "x", engine=PROCESS), (Slot(gpu("A100", "here")),))
    assert candidates(wants("a", "A100"), [here, FLEET[2]], fits) == ["ampere"]
    assert candidates(wants("a", "A100", image=None), [here, FLEET[2]], fits) == ["here"]
    waits = one(place([wants("a", "A100")], [here], {}, fits))
    assert isinstance(waits, MustWait) and "here takes no job with an image" in waits.reason


def test_a_site_chooses_gpus_by_itself_and_is_asked_when_no_other_gpu_is_free() -> None:
    site = HostView(Host("cluster", "x", engine=SITE))
    first, second = place([wants("a", "A100"), wants("b", "A100")], [site, FLEET[2]], {}, fits)
    assert first == Placed("a", "ampere", (gpu("A100", "ampere"),), IMAGE, DOCKER)
    assert second == Placed("b", "cluster", (), IMAGE, SITE)
    assert candidates(wants("a", "A100"), [site], fits) == ["cluster"]
    assert isinstance(one(place([wants("a", "A100", avoid={"cluster": "is avoided"})], [site], {}, fits)), MustWait)


# GPUs where jobs die

PAIR = HostView(Host("pair", "x"), (Slot(gpu("A100", "pair", 0)), Slot(gpu("A100", "pair", 1))))
BAD = replace(PAIR, slots=(replace(PAIR.slots[0], set_aside="is set aside until 14:20"), PAIR.slots[1]))


def test_a_gpu_that_is_set_aside_is_not_given_and_the_reason_says_so() -> None:
    first, second = place([wants("a", "A100"), wants("b", "A100")], [BAD], {}, fits)
    assert first == Placed("a", "pair", (gpu("A100", "pair", 1),), IMAGE, DOCKER)
    assert second == MustWait(
        "b", "waits for an A100: pair's A100 0 is set aside until 14:20; pair's A100 1 is in use by a"
    )
    assert candidates(wants("a", "A100:2"), [BAD], fits) == [] and candidates(wants("a", "A100"), [BAD], fits)


def test_no_gpu_is_kept_for_a_job_that_needs_one_that_is_set_aside() -> None:
    both, small = place([wants("a", "A100:2"), wants("b", "A100")], [BAD], {}, fits)
    assert isinstance(both, MustWait) and isinstance(small, Placed)


@pytest.mark.parametrize(
    ("taken", "expected"),
    [((), ("pair", 1)), (("pair", 1), ("ampere", 0)), (("ampere", 0), ("pair", 1))],
)
def test_a_job_takes_the_gpu_where_it_died_only_if_no_other_is_free(
    taken: tuple[str, int] | tuple[()], expected: tuple[str, int]
) -> None:
    died_at = frozenset({("pair", "GPU-pair-0")})
    leases = {("pair", "GPU-pair-0"): "a"} | ({(taken[0], f"GPU-{taken[0]}-{taken[1]}"): "x"} if taken else {})
    job = wants("a", "A100", near="pair", use_last=died_at, own=died_at)
    placed = one(place([job], [FLEET[2], PAIR], leases, fits))
    assert isinstance(placed, Placed) and (placed.host, placed.gpus[0].index) == expected
    everywhere = dict.fromkeys([("pair", "GPU-pair-1"), ("ampere", "GPU-ampere-0")], "x") | leases
    again, other = place([job, wants("b", "A100", priority=9)], [FLEET[2], PAIR], everywhere, fits)
    assert isinstance(again, Placed) and again.gpus == (gpu("A100", "pair", 0),), "its own, which nobody else gets"
    assert isinstance(other, MustWait)


def test_of_two_kinds_on_one_host_the_one_where_the_job_did_not_die_is_taken() -> None:
    mixed = view("mixed", "A100", "P100")
    job = wants("a", {"memory": ">=8g"}, use_last=frozenset({("mixed", "GPU-mixed-0")}))
    placed = one(place([job], [mixed], {}, fits))
    assert isinstance(placed, Placed) and placed.gpus == (gpu("P100", "mixed", 1),)


# Several hosts


def shared(name: str, *kinds: str, folder: str = "/srv/rung", **fields: Any) -> HostView:
    made = view(name, *kinds, **fields)
    return replace(made, host=replace(made.host, shared=folder))


A100S = [shared("a", "A100", "A100"), shared("b", "A100"), shared("c", "A100", "A100")]


def hosts_of(result: PlacementResult) -> dict[str, int]:
    assert isinstance(result, Placed), result
    return {place.host: len(place.gpus) for place in result.places}


def test_a_job_on_several_hosts_gets_its_gpus_on_each_or_nothing() -> None:
    both = wants("a-1", "A100:2", nodes=2)
    assert hosts_of(one(place([both], A100S, {}, fits))) == {"a": 2, "c": 2}
    waits = one(place([both], A100S, {("c", "GPU-c-1"): "x-1"}, fits))
    assert isinstance(waits, MustWait) and waits.reason.startswith("waits for 2 A100 on each of 2 hosts: ")
    assert "c's A100 1 is in use by x-1" in waits.reason and "kept" not in waits.reason


def test_only_hosts_with_one_folder_run_a_job_together() -> None:
    apart = [shared("a", "A100"), shared("b", "A100", folder="/srv/other"), view("c", "A100"), view("d", "A100")]
    assert isinstance(one(place([wants("a-1", "A100", nodes=2)], apart, {}, fits)), MustWait)
    assert candidates(wants("a-1", "A100", nodes=2), apart, fits) == []
    assert candidates(wants("a-1", "A100", nodes=2), [*apart, shared("e", "A100")], fits) == ["a", "e"]


def test_all_hosts_of_a_job_have_one_type_of_gpu() -> None:
    mixed = [shared("a", "A100"), shared("b", "P100"), shared("c", "P100")]
    assert hosts_of(one(place([wants("a-1", 1, nodes=2)], mixed, {}, fits))) == {"b": 1, "c": 1}


def test_the_host_with_its_files_leads() -> None:
    placed = one(place([wants("a-1", "A100", nodes=2, near="c")], A100S, {}, fits))
    assert isinstance(placed, Placed) and placed.host == "c" and len(placed.members) == 1


def test_two_jobs_on_several_hosts_share_no_gpu() -> None:
    first, second = place([wants("a-1", "A100", nodes=3), wants("b-2", "A100", nodes=2)], A100S, {}, fits)
    assert hosts_of(first) == {"a": 1, "b": 1, "c": 1} and hosts_of(second) == {"a": 1, "c": 1}
    assert isinstance(first, Placed) and isinstance(second, Placed)
    taken = [(place.host, gpu.uuid) for placed in (first, second) for place in placed.places for gpu in place.gpus]
    assert len(taken) == len(set(taken)) == 5


def test_smaller_jobs_do_not_overtake_one_that_waits_for_several_hosts() -> None:
    waiting = [wants("a-1", "A100", nodes=2), wants("b-2", "A100")]
    two = [shared("a", "A100"), shared("b", "A100")]
    first, second = place(waiting, two, {("b", "GPU-b-0"): "x-1"}, fits)
    assert isinstance(first, MustWait) and isinstance(second, MustWait)
    assert "is kept for a-1" in second.reason


def test_without_a_gpu_it_takes_the_hosts_with_the_fewest_attempts() -> None:
    views = [shared("a", load=3), shared("b", load=1), shared("c", load=2)]
    assert hosts_of(one(place([wants("a-1", nodes=2)], views, {}, fits))) == {"b": 0, "c": 0}
    assert isinstance(one(place([wants("a-1", nodes=2)], views[:1], {}, fits)), MustWait)
