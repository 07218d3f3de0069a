"""Tests which GPUs a request accepts, and how it is written."""

from __future__ import annotations

import pytest

from rung.jobs.model.errors import SpecError
from rung.jobs.model.gpu import Gpu
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import parse_spec
from rung.jobs.spec.resources import GpuRequest

GIB = 1 << 30
P100 = Gpu("Tesla P100-PCIE-16GB", (6, 0), memory=16276 << 20)
TITAN = Gpu("NVIDIA TITAN RTX", (7, 5), memory=24 * GIB)
A100 = Gpu("NVIDIA A100-SXM4-40GB", (8, 0), memory=40 * GIB)
ALL = (P100, TITAN, A100)


def requests(text: str) -> tuple[GpuRequest, ...]:
    return parse_spec(f"name: a\nrun: x\nresources:\n  gpu: {text}\n".encode()).resources.gpu


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("A100", [A100]),
        ("'a100:2'", [A100]),
        ("Titan RTX:1", [TITAN]),
        ("{capability: '>=7.5'}", [TITAN, A100]),
        ("{capability: '<7.5'}", [P100]),
        ("{capability: '==6.0'}", [P100]),
        ("{memory: '>=16g'}", [P100, TITAN, A100]),
        ("{memory: '>24g'}", [A100]),
        ("{memory: '<20g'}", [P100]),
        ("{capability: '>=7.0', memory: '>=40g'}", [A100]),
        ("{type: TITANRTX, memory: '>=40g'}", []),
        ("4", [P100, TITAN, A100]),
        ("{count: 4}", [P100, TITAN, A100]),
    ],
)
def test_a_request_accepts_the_gpus_it_names(text: str, accepted: list[Gpu]) -> None:
    (request,) = requests(text)
    assert [gpu for gpu in ALL if request.fits(gpu)] == accepted


def test_requests_keep_their_order_and_their_counts_through_the_store() -> None:
    spec = parse_spec(b"name: a\nrun: x\nresources: {gpu: [P100:2, A100, {capability: '>=7.5', count: 4}]}\n")
    assert [(request.type, request.count) for request in spec.resources.gpu] == [("P100", 2), ("A100", 1), (None, 4)]
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "text",
    [
        "A100:0",
        "A100:65",
        "':'",
        "'; rm -rf /'",
        "[{count: 0}]",
        "65",
        "true",
        "[{capability: '7.5'}]",
        "{memory: '16'}",
        "[3.5]",
        "{typ: A100}",
    ],
)
def test_an_invalid_request_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(SpecError, match=r"^4: resources\.gpu"):
        requests(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A100", "an A100"),
        ("P100:1", "a P100"),
        ("TITANRTX:2", "2 TITANRTX"),
        ("1", "a GPU"),
        ("4", "4 GPUs"),
        ("{capability: '>=7.5'}", "a GPU with capability >=7.5"),
    ],
)
def test_a_request_has_a_text_for_people(text: str, shown: str) -> None:
    assert requests(text)[0].text == shown


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0), ("off", None)]
)
def test_the_time_a_host_may_be_away_is_read_in_the_usual_notations(text: str, seconds: float | None) -> None:
    spec = parse_spec(f"name: a\nrun: x\nrecovery: {{host_lost_after: {text}}}\n".encode())
    assert spec.recovery.host_lost_after == seconds
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("text", "read"), [("auto", "auto"), ("90", 90.0), ("90s", 90.0), ("30m", 1800.0), ("off", None), ("'off'", None)]
)
def test_the_time_a_run_may_be_silent_is_read_in_the_usual_notations(text: str, read: float | str | None) -> None:
    spec = parse_spec(f"name: a\nrun: x\nrecovery: {{stalled: {text}}}\n".encode())
    assert spec.recovery.stalled == read
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize("text", ["yes", "5x", "never", "-3", "0"])
def test_a_silence_that_cannot_be_read_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(SpecError, match=r"recovery\.stalled"):
        parse_spec(f"name: a\nrun: x\nrecovery: {{stalled: {text}}}\n".encode())


@pytest.mark.parametrize("text", ["yes", "5x", "-3", "0", "'1m 5s'"])
def test_a_time_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="host_lost_after"):
        parse_spec(f"name: a\nrun: x\nrecovery: {{host_lost_after: {text}}}\n".encode())
