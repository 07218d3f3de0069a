"""Tests what a job file asks of a site: time, nodes, and the section `slurm`."""

from __future__ import annotations

import json

import pytest

from rung.jobs.model.errors import SpecError
from rung.jobs.site.job_section import SlurmSection
from rung.jobs.spec.load import parse_spec
from rung.jobs.spec.stored import read_stored

HEAD = "name: a\nrun: x\n"


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as raised:
        parse_spec(f"{HEAD}{text}\n".encode())
    return raised.value.problems


@pytest.mark.parametrize("written", ["12h", "12:00:00", "'12:00:00'", "0-12:00", "720m"])
def test_a_time_needs_no_quotes(written: str) -> None:
    assert parse_spec(f"{HEAD}resources: {{time: {written}}}".encode()).resources.time == 43_200


def test_the_section_is_read_and_says_that_the_job_goes_to_a_site() -> None:
    section = "slurm: {account: lab, qos: high, partition: 'gpu,long', options: [--constraint=ib, --exclusive]}"
    spec = parse_spec(f"{HEAD}{section}\n".encode())
    assert spec.slurm == SlurmSection(
        account="lab", qos="high", partition="gpu,long", options=("--constraint=ib", "--exclusive")
    )
    assert spec.is_remote and spec.needs_site


@pytest.mark.parametrize("text", ["slurm: {}", "resources: {time: 12h}", "resources: {nodes: 2}"])
def test_what_only_a_site_has_sends_the_job_there(text: str) -> None:
    assert parse_spec(f"{HEAD}{text}\n".encode()).needs_site


def test_what_only_repeats_the_defaults_does_not() -> None:
    assert not parse_spec(f"{HEAD}resources: {{nodes: 1}}\n".encode()).is_remote


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resources: {time: 720}", "3: resources.time: give a time with its unit, such as 12h"),
        ("resources: {time: 30s}", "3: resources.time: give a time from one minute to 365 days"),
        ("resources: {time: soon}", "3: resources.time: give a time such as 12h"),
        ("resources: {nodes: 0}", "3: resources.nodes: input should be greater than or equal to 1"),
        ("resources: {nodes: 1025}", "3: resources.nodes: input should be less than or equal to 1024"),
        ("slurm: gpu", "3: slurm: input should be a mapping"),
        ("slurm: {acount: lab}", "3: slurm.acount: unknown key"),
        ("slurm: {account: --wrap=x}", "3: slurm.account: should be one plain name"),
        ("slurm: {partition: a b}", "3: slurm.partition: should be one plain name"),
        ("slurm: {qos: 'a\n\n  b'}", "3: slurm.qos: should be one plain name"),
        ("slurm: {options: [--wrap=x]}", "3: slurm.options[0]: --wrap: a job file may not set this one"),
        ("slurm: {options: ['--nice 3']}", "3: slurm.options[0]: should be one word"),
        ("slurm: {options: [--nice=1, --nice=2]}", "3: slurm.options: --nice is given twice"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_place(text: str, message: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(message) and "\n" not in problem


def test_a_stored_job_is_read_as_it_was() -> None:
    spec = parse_spec(f"{HEAD}resources: {{time: 12h, nodes: 2}}\nslurm: {{qos: high}}\n".encode())
    stored = read_stored(spec.model_dump_json())
    assert stored.spec == spec and not stored.refused


def test_a_job_of_an_earlier_version_asks_for_no_site() -> None:
    stored = read_stored(json.dumps({"name": "a", "run": ["x"], "resources": {"cpus": 2}}))
    assert not stored.refused and not stored.spec.needs_site
