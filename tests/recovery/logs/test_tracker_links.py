"""Tests the links to W&B and MLflow in a log: however it is cut, and whatever a hostile log writes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.logs.tracker_links import MOST_LINKS, OVERLAP, TrackerLinks, mlflow_run

RUN = "0123456789abcdef0123456789abcdef"
MLFLOW = f"http://mlflow.lab:5000/#/experiments/7/runs/{RUN}"
WANDB = "https://wandb.ai/me/my-project/runs/a1b2c3d4"
LOG = (
    "wandb: Tracking run with wandb version 0.19.1\n"
    f"wandb: \N{ROCKET} View run at \x1b[34m\x1b[4m{WANDB}\x1b[0m\n"
    "step 1 loss 2.0\n"
    f"\N{RUNNER} View run bold-fox-12 at: {MLFLOW}\n"
).encode()


def links(*chunks: bytes) -> tuple[str, ...]:
    reader = TrackerLinks()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.found


@given(st.lists(st.integers(0, len(LOG)), max_size=6))
def test_both_are_found_however_the_log_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(LOG)]
    chunks = [LOG[start:end] for start, end in pairwise(places)]
    assert links(*chunks) == (WANDB, MLFLOW)


@pytest.mark.parametrize(
    "text",
    [
        "see https://github.com/me/project/runs/12 for the CI",  # not W&B's
        "wandb: https://user:secret@wandb.ai/me/project/runs/a1\n",
        "wandb: javascript://wandb.ai/me/project/runs/a1\n",
        f"http://x/#/experiments/7/runs/{RUN}00\n",
        f"http://me:pw@mlflow/#/experiments/7/runs/{RUN}\n",
        f"http://{'a' * 300}/#/experiments/7/runs/{RUN}\n",
        f"wandb: https://wandb.ai/{'e' * 200}/p/runs/a1\n",
        "wandb: https://wandb.ai/<script>/p/runs/a1\n",
    ],
)
def test_what_is_no_link_to_a_run_is_left_out(text: str) -> None:
    assert links(text.encode(), b"\n") == ()


def test_a_key_behind_the_link_is_never_kept() -> None:
    assert links(f"wandb: View run at {WANDB}?apiKey=0123456789\n".encode()) == (WANDB,)


def test_of_a_hostile_log_only_a_few_links_are_kept_in_constant_memory() -> None:
    reader = TrackerLinks()
    for number in range(200):
        reader.feed(f"wandb: https://wandb.ai/me/p/runs/r{number}\n".encode() + b"x" * 5000)
        assert len(reader._held) <= OVERLAP
    assert reader.found == tuple(f"https://wandb.ai/me/p/runs/r{number}" for number in range(MOST_LINKS))


def test_the_run_of_mlflow_is_known_only_where_there_is_one() -> None:
    other = MLFLOW.replace(RUN, RUN[::-1])
    assert mlflow_run((WANDB, MLFLOW)) == RUN
    assert mlflow_run((MLFLOW, other)) is None  # nested runs: which is the outer one is open
    assert mlflow_run((WANDB,)) is None and mlflow_run((WANDB,), known=RUN) == RUN
    assert mlflow_run((MLFLOW,), known=RUN[::-1]) == RUN


def test_a_run_without_a_server_is_found_in_the_record_of_it_and_nowhere_else() -> None:
    links = TrackerLinks()
    links.feed(f"rung| tracker link=runs:/{RUN}\nloaded runs:/{RUN[::-1]}/model link=runs:/{RUN[::-1]}\n".encode())
    assert links.found == (f"runs:/{RUN}",)
    assert mlflow_run(links.found) == RUN
