"""Owns the proof of who gets which GPU: never two on one, first come first served, nobody forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.spec.gpu_request import GpuRequest
from rung.runner.placement.scheduler import Answer, HostView, Placed, Refused, Slot, Waiting, Waits, could_go, place

IMAGE = f"train@sha256:{'0' * 64}"
KINDS = {"TITANRTX": ("NVIDIA TITAN RTX", (7, 5), 24), "P100": ("Tesla P100-PCIE-16GB", (6, 0), 16)}
KINDS |= {"A100": ("NVIDIA A100-SXM4-40GB", (8, 0), 40)}


def gpu(kind: str, host: str, index: int = 0) -> Gpu:
    name, capability, memory = KINDS[kind]
    return Gpu(name, capability, index, f"GPU-{host}-{index}", memory << 30)


def site(
    name: str, *kinds: str, trouble: str = "", strangers: Mapping[int, str] | None = None, load: int = 0
) -> HostView:
    host = Host(name, name, groups=tuple(kind.lower() for kind in kinds))
    slots = tuple(Slot(gpu(kind, name, i), (strangers or {}).get(i, "")) for i, kind in enumerate(kinds))
    return HostView(host, slots, trouble, load)


def wants(job: str, *wishes: str | dict[str, object], **fields: object) -> Waiting:
    return Waiting(job, tuple(GpuRequest.model_validate(wish) for wish in wishes), **{"image": IMAGE, **fields})  # type: ignore[arg-type]


def fits(image: str, gpu: Gpu) -> str | None:
    return None


def no_pascal(image: str, gpu: Gpu) -> str | None:
    return "it has no code for sm_60" if gpu.capability < (7, 0) else None


FLEET = [site("turing", "TITANRTX"), site("pascal", "P100"), site("ampere", "A100")]


def one(answer: Sequence[Answer]) -> Answer:
    (only,) = answer
    return only


def test_a_job_takes_the_first_acceptable_gpu_in_its_own_order() -> None:
    placed = one(place([wants("a", "P100", "A100", "TITANRTX")], FLEET, {}, fits))
    assert placed == Placed("a", "pascal", (gpu("P100", "pascal"),), IMAGE)
    second = one(place([wants("a", "P100", "A100", "TITANRTX")], FLEET, {"GPU-pascal-0": "b"}, fits))
    assert isinstance(second, Placed) and second.host == "ampere"


def test_two_jobs_that_want_the_only_one_and_one_waits_and_says_why() -> None:
    first, second = place([wants("a-1", "A100"), wants("b-2", "A100")], FLEET, {}, fits)
    assert isinstance(first, Placed)
    assert second == Waits("b-2", "waits for an A100: ampere's only one is in use by a-1")


def test_who_waits_for_one_thing_holds_back_nobody_who_wants_another() -> None:
    answers = place([wants("a", "A100"), wants("b", "P100")], FLEET, {"GPU-ampere-0": "x"}, fits)
    assert [type(answer) for answer in answers] == [Waits, Placed]


def test_higher_priority_goes_first_and_equals_in_the_order_they_came() -> None:
    waiting = [wants("a", "A100"), wants("b", "A100", priority=5), wants("c", "A100", priority=5)]
    assert [type(answer) for answer in place(waiting, FLEET, {}, fits)] == [Waits, Placed, Waits]


def test_a_gpu_with_a_strangers_process_is_not_taken() -> None:
    busy = [site("ampere", "A100", strangers={0: "pid 812 python"})]
    said = one(place([wants("a", "A100")], busy, {}, fits))
    assert said == Waits("a", "waits for an A100: ampere's only one is in use by someone else (pid 812 python)")


@pytest.mark.parametrize(
    ("sites", "reason"),
    [
        ([], "waits for an A100: the list of hosts is empty"),
        (FLEET[:2], "waits for an A100: no host that answers has one"),
        ([site("ampere", "A100", trouble="is unreachable")], "waits for an A100: ampere is unreachable"),
        ([site("ampere", "A100", trouble="has a full disk")], "waits for an A100: ampere has a full disk"),
        (
            [HostView(Host("ampere", "x", groups=("a100",)), (), "has not been looked at yet"), FLEET[0]],
            "waits for an A100: ampere has not been looked at yet",
        ),
    ],
)
def test_the_reason_names_what_is_in_the_way(sites: list[HostView], reason: str) -> None:
    assert one(place([wants("a", "A100")], sites, {}, fits)) == Waits("a", reason)


def test_a_misfit_on_one_host_means_the_next_wish() -> None:
    placed = one(place([wants("a", "P100", "A100")], FLEET, {}, no_pascal))
    assert isinstance(placed, Placed) and placed.host == "ampere"


def test_a_misfit_on_every_gpu_it_accepts_is_a_refusal() -> None:
    said = one(place([wants("a", "P100")], FLEET, {}, no_pascal))
    assert said == Refused("a", "Tesla P100-PCIE-16GB cannot run the image: it has no code for sm_60")
    unseen = [*FLEET, HostView(Host("other", "x"), (), "is unreachable")]
    assert isinstance(one(place([wants("a", "P100")], unseen, {}, no_pascal)), Waits)


def test_a_map_of_images_gives_each_gpu_its_own() -> None:
    images = {"A100": f"a@sha256:{'1' * 64}", "P100": f"p@sha256:{'2' * 64}"}
    placed = one(place([wants("a", "P100", image=images)], FLEET, {}, fits))
    assert isinstance(placed, Placed) and placed.image == images["P100"]
    assert isinstance(one(place([wants("a", "TITANRTX", image=images)], FLEET, {}, fits)), Refused)


def test_several_gpus_are_of_one_host_and_one_type() -> None:
    mixed = [site("a", "A100", "P100"), site("b", "P100", "A100", "A100")]
    placed = one(place([wants("j", {"capability": ">=6.0", "count": 2})], mixed, {}, fits))
    assert isinstance(placed, Placed) and placed.host == "b"
    assert [each.type for each in placed.gpus] == ["A100", "A100"]


def test_small_jobs_do_not_overtake_a_big_one_for_ever() -> None:
    two = [site("a", "A100", "A100")]
    big, small = place([wants("big", "A100:2"), wants("small", "A100")], two, {"GPU-a-0": "old"}, fits)
    assert isinstance(big, Waits) and "GPU" not in big.reason
    assert small == Waits(
        "small", "waits for an A100: a's A100 0 is in use by old; a's A100 1 is kept for big, which waits for 2"
    )


def test_a_big_job_that_no_host_can_ever_hold_keeps_nothing_back() -> None:
    answers = place([wants("big", "A100:3"), wants("small", "A100")], [site("a", "A100", "A100")], {}, fits)
    assert [type(answer) for answer in answers] == [Waits, Placed]


def test_a_job_without_a_wish_takes_a_host_without_a_gpu_where_least_runs() -> None:
    sites = [site("a", "A100", load=2), site("b", load=1)]
    first, second = place([wants("x"), wants("y")], sites, {"GPU-a-0": "z"}, fits)
    assert (first, second) == (Placed("x", "b", (), IMAGE), Placed("y", "a", (), IMAGE))


def test_a_job_stays_near_its_files_and_goes_where_it_is_not_avoided() -> None:
    pair = [site("a", "A100"), site("b", "A100")]
    near = one(place([wants("j", "A100", near="b")], pair, {}, fits))
    assert isinstance(near, Placed) and near.host == "b"
    away = one(place([wants("j", "A100", near="b", avoid={"b": "is avoided"})], pair, {}, fits))
    assert isinstance(away, Placed) and away.host == "a"
    alone = one(place([wants("j", "A100", avoid={"a": "is avoided after 2 faults"})], pair[:1], {}, fits))
    assert alone == Waits("j", "waits for an A100: a is avoided after 2 faults")


def test_where_a_job_could_go_does_not_ask_who_is_there_now() -> None:
    sites = [*FLEET, site("ampere-2", "A100", trouble="is unreachable")]
    assert could_go(wants("j", "A100", "P100"), sites, fits) == ["pascal", "ampere"]
    assert could_go(wants("j", "A100", "P100"), sites, no_pascal) == ["ampere"]
    assert could_go(wants("j"), sites, fits) == ["turing", "pascal", "ampere"]


kinds = st.sampled_from(sorted(KINDS))
wishes = st.builds(lambda kind, count: f"{kind}:{count}", kinds, st.integers(1, 2))
jobs = st.lists(st.tuples(st.lists(wishes, max_size=3), st.integers(0, 2)), max_size=12)
hosts = st.lists(st.tuples(st.lists(kinds, max_size=4), st.booleans(), st.booleans()), max_size=4)


def made(
    asked: list[tuple[list[str], int]], there: list[tuple[list[str], bool, bool]]
) -> tuple[list[Waiting], list[HostView]]:
    waiting = [wants(f"j{i}", *wish, priority=priority) for i, (wish, priority) in enumerate(asked)]
    sites = [
        site(f"h{i}", *names, trouble="is unreachable" if away else "", strangers={0: "pid 1"} if busy else {})
        for i, (names, away, busy) in enumerate(there)
    ]
    return waiting, sites


@given(jobs, hosts)
def test_no_gpu_is_given_twice_and_everybody_gets_an_answer(
    asked: list[tuple[list[str], int]], there: list[tuple[list[str], bool, bool]]
) -> None:
    waiting, sites = made(asked, there)
    answers = place(waiting, sites, {"GPU-h0-1": "old"}, fits)
    given_out = [each.uuid for answer in answers if isinstance(answer, Placed) for each in answer.gpus]
    assert len(given_out) == len(set(given_out))
    assert "GPU-h0-1" not in given_out
    taboo = {slot.gpu.uuid for s in sites for slot in s.slots if slot.stranger or s.trouble}
    assert not taboo & set(given_out)
    for job, answer in zip(waiting, answers, strict=True):
        assert answer.job == job.job
        if isinstance(answer, Placed):
            kept = [wish for wish in job.wishes if len(answer.gpus) == wish.count and wish.fits(answer.gpus[0])]
            assert kept or not job.wishes
        else:
            assert answer.reason and "\n" not in answer.reason and not answer.reason.endswith(": ")


@given(jobs, hosts)
def test_nobody_is_overtaken_by_an_equal_who_wants_the_same(
    asked: list[tuple[list[str], int]], there: list[tuple[list[str], bool, bool]]
) -> None:
    waiting, sites = made(asked, there)
    answers = place(waiting, sites, {}, fits)
    for i, early in enumerate(waiting):
        for j in range(i + 1, len(waiting)):
            late = waiting[j]
            if early.wishes == late.wishes and early.priority == late.priority and isinstance(answers[i], Waits):
                assert isinstance(answers[j], Waits)


@given(jobs, hosts)
def test_nobody_starves_while_others_end(
    asked: list[tuple[list[str], int]], there: list[tuple[list[str], bool, bool]]
) -> None:
    """Whoever could ever run does, in the end, though new jobs for one GPU keep coming."""
    waiting, sites = made(asked, there)
    able = {job.job for job in waiting if could_go(job, sites, fits)}
    running: list[Placed] = []
    for late in range(4 * len(waiting) + 4):
        # One ends and one more comes, each turn.
        running = running[1:]
        waiting = [*waiting, wants(f"late{late}", "A100:1", "P100:1", "TITANRTX:1")]
        leases = {each.uuid: placed.job for placed in running for each in placed.gpus}
        answers = place(waiting, sites, leases, fits)
        started = [answer for answer in answers if isinstance(answer, Placed)]
        running += started
        waiting = [job for job in waiting if job.job not in {placed.job for placed in started}]
        able -= {placed.job for placed in started}
        if not able:
            return
    assert not able
