"""Tests the command for a host's health script and the parser of its output."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rung.jobs.model.host import Host
from rung.runner.hosts.health import Health, failed_checks, health_command, parse_health
from rung.runner.hosts.survey import Report
from rung.runner.preflight.check_host import check_host
from rung.runner.views.hosts_table import hosts_json, hosts_table

TOOLKIT = Health("bad", "toolkit", "no container toolkit", "make provision")


def test_valid_lines_are_read_and_others_are_skipped() -> None:
    good = "good\tkey\tthe keys are there\t\nbad\ttoolkit\tno container toolkit\tmake provision\n"
    assert parse_health(f"{good}worse\ta\tb\tc\nbad\tx\nhello\n") == (
        Health("good", "key", "the keys are there"),
        TOOLKIT,
    )


def test_the_output_of_a_host_cannot_write_to_the_terminal() -> None:
    (only,) = parse_health("bad\tlog\t\x1b[2Jgone\x07" + "x" * 1000 + "\t\n")
    assert "\x1b" not in only.message and "\x07" not in only.message
    assert len(only.message) <= 300


def test_a_host_without_the_script_prints_nothing_and_that_is_no_error() -> None:
    done = subprocess.run(health_command(quick=True), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "") or Path("/usr/local/lib/rung/health").exists()


def test_what_the_survey_reports_is_not_reported_twice() -> None:
    disk = Health("bad", "disk", "disk nearly full")
    assert failed_checks((disk, TOOLKIT, Health("unknown", "xid", "may not see"))) == (TOOLKIT,)


def test_it_is_shown_by_check_and_by_hosts() -> None:
    report = Report(Host("titan1", "titan1"), engine="27.0", health=(TOOLKIT,))
    reported = [finding for finding in check_host(report) if not finding.good]
    assert "host titan1: toolkit: no container toolkit" in [finding.what for finding in reported]
    assert "unwell: no container toolkit" in hosts_table([report], 200)
    assert hosts_json([report])[0]["health"][0]["what"] == "toolkit"
