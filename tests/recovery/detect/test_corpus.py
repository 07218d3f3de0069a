"""Tests whole small logs in the formats of many frameworks, with their expected findings: tests/corpus/expected.json.

Most are shortened logs of real runs (`origin`); logs that need a GPU or several machines are written by hand.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus.collection import HEALTHY, HERE, as_expected, load, outcome
from tests.corpus.collection import watch as watch_chunks
from tests.corpus.healthy import FORMATS, healthy_log
from tests.corpus.strangers import GROUPS, RIGHT
from tests.corpus.strangers import load as load_strangers

CASES = {case.name: case for case in load()}
EXPECTED = {name: case.expected for name, case in CASES.items()}
ROOT = HERE.parent.parent


def watch(name):
    """Return the detector after a whole log, and all its findings."""
    seen = watch_chunks([CASES[name].data])
    return seen.detector, seen.listed


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_log_of_the_corpus_gives_the_expected_findings(name):
    seen = watch_chunks([CASES[name].data])
    assert {**EXPECTED[name], **outcome(seen)} == EXPECTED[name]
    assert as_expected(CASES[name], seen) == ""
    # The fault that the log shows is found, and a healthy log has no finding.
    assert CASES[name].label in seen.kinds or (CASES[name].label == HEALTHY and not seen.kinds)


def test_the_size_of_the_chunks_does_not_change_the_findings():
    for name, case in CASES.items():
        chunks = [case.data[at : at + 977] for at in range(0, len(case.data), 977)]
        assert outcome(watch_chunks(chunks)) == outcome(watch_chunks([case.data])), name


def test_numbers_that_a_bar_broke_over_two_lines_are_joined():
    values = watch("lightning_rich_healthy.log")[0].progress.values
    assert (values["train_loss_step"], values["val_loss"], values["train_loss_epoch"]) == (0.111, 0.119, 0.258)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torchrun_rank_raises.log", "[rank1]: ValueError: a sample without a label"),
        ("worker_raises.log", "KeyError: 'label'"),
    ],
)
def test_an_unknown_exception_is_the_last_line_of_the_tail_in_a_real_log(name, words):
    assert watch(name)[0].tail[-1] == words


def test_every_log_of_the_corpus_has_an_expectation():
    assert {path.name for path in HERE.glob("*.log")} == set(EXPECTED)
    for name, expected in EXPECTED.items():
        assert expected["origin"] in ("run", "written") and expected["framework"], name


def test_a_log_that_is_called_healthy_shows_no_fault():
    assert [name for name, case in CASES.items() if "healthy" in name and case.label != HEALTHY] == []


def test_the_corpus_is_large_and_its_files_are_small():
    assert len(CASES) >= 120
    assert sum(case.label == HEALTHY for case in CASES.values()) >= 40
    assert sum(len(case.data) for case in CASES.values()) < 2_000_000


@pytest.mark.parametrize("name", FORMATS)
def test_a_healthy_log_gives_no_finding(name):
    lines = list(healthy_log(name, 1500, seed=7))
    seen = watch_chunks(lines)
    assert [(fault.kind, fault.line, fault.evidence) for fault in seen.listed] == []
    assert lines == list(healthy_log(name, 1500, seed=7))


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"transformers", "parts"}))
def test_the_steps_of_a_healthy_log_are_read(name):
    progress = watch_chunks(healthy_log(name, 1500, seed=7)).detector.progress
    assert progress.first_step in (0, 1)
    assert progress.furthest_step > 300 and progress.loss is not None


# The tool


def run_tool(*words):
    return subprocess.run(
        [sys.executable, "-m", "tests.corpus", *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_tool_measures_a_collection_from_a_file(tmp_path: Path):
    rows = [
        {"id": "a", "label": "nan_loss", "framework": "mine", "lines": ["step 1 loss nan", "step 2 loss nan"]},
        {"id": "b", "label": "oom", "lines": "step 1 loss 2.0\nall is well"},
        {"id": "c", "label": "benign", "lines": ["step 1 loss 2.0"]},
        {
            "id": "d",
            "label": "cuda_fault",
            "lines": ["RuntimeError: CUDA error: no kernel image is available for execution"],
        },
    ]
    collection = tmp_path / "mine.jsonl"
    collection.write_text("\n".join(map(json.dumps, rows)))
    done = run_tool(collection, "--by", "framework", "--lines", "0")
    assert done.returncode == 1, done.stderr
    printed = [line.split() for line in done.stdout.splitlines()]
    assert ["nan_loss", "1", "1", "100.0%"] in printed and ["oom", "0", "1", "0.0%"] in printed
    assert ["cuda_fault", "1", "1", "100.0%"] in printed
    assert ["mine", "1", "1", "0", "0"] in printed and ["other", "2", "1", "1", "0"] in printed
    assert "not as expected: b: expected oom, seen healthy" in done.stdout
    assert "0 false alarms in" in done.stdout


def test_the_tool_exits_with_0_if_all_logs_are_as_expected(tmp_path: Path):
    collection = tmp_path / "mine.jsonl"
    collection.write_text(json.dumps({"label": "healthy", "lines": ["step 1 loss 2.0", "best_loss=inf"]}))
    done = run_tool(collection, "--lines", "600")
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.00 per 100k" in done.stdout


# Logs of strangers


def test_the_tool_shows_what_was_found_in_the_logs_of_strangers():
    done = run_tool("--strangers")
    assert (done.returncode, done.stderr) == (0, "")
    printed = [line.rsplit(maxsplit=3) for line in done.stdout.splitlines()]
    page = (ROOT / "docs" / "faults.md").read_text()
    for group in GROUPS:
        cells = [f"{first} \u2192 {now} of {logs}" for name, logs, first, now in printed if name == group]
        assert len(cells) == 15
        row = f" | {' | '.join(cells)} |"
        assert any(line.startswith(f"| {group}") and line.endswith(row) for line in page.splitlines())


def test_each_log_of_a_stranger_has_an_address_a_known_label_and_both_findings_and_no_text():
    rows = load_strangers()
    assert len({(row["list"], row["id"]) for row in rows}) == len(rows) == 1863
    for row in rows:
        said = ["held_out", "visible", "said"]
        more = {4: ["held_out", "visible"], 5: said, 6: said, 7: said, 8: said}.get(row["list"], [])
        assert list(row) == ["id", "source", "label", "first", "now", "list", *more], row
        # A few of the third list were found by their text alone.
        assert row["source"].startswith("https://") or (row["source"], row["list"]) == ("", 3), row
        assert row["label"] in RIGHT, row
    assert {label for labels in GROUPS.values() for label in labels} == set(RIGHT)


@pytest.mark.parametrize("number", [4, 5, 6, 8])
def test_the_half_of_a_list_that_was_held_out_was_chosen_by_a_hash(number: int):
    rows = [row for row in load_strangers() if row["list"] == number]
    assert [row["held_out"] for row in rows] == [
        hashlib.sha256(row["id"].encode()).digest()[-1] % 2 == 1 for row in rows
    ]


# Excerpts of own runs


def test_nothing_is_acted_on_in_the_healthy_excerpts_of_own_runs_and_no_group_is_found_less_often_than_at_first():
    done = run_tool("--own-runs")
    assert done.returncode == 0, done.stderr
    rows = [line.rsplit(maxsplit=4) for line in done.stdout.splitlines()[1:]]
    assert len(rows) == 6
    for group, logs, first, now, said in rows:
        if group.endswith("healthy"):
            assert logs == now
        else:
            assert int(first) <= int(now) <= int(said), group
