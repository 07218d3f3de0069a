"""Tests the options of sbatch: what is asked is in them, and no value can become another option."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.site.options import Submission, chosen_options, sbatch_options
from rung.jobs.site.settings import Asked, GpuOption, Site
from rung.jobs.site.words import JOB_OPTIONS, OWN_OPTIONS, job_option, site_option

SUBMISSION = Submission("rung-s-llm-7-1", "rung/s/llm-7/1", "/home/me/.rung/log", "/home/me/.rung/work")


def values(options: list[str]) -> dict[str, str]:
    found = dict(word.removeprefix("--").partition("=")[::2] for word in options)
    assert len(found) == len(options), "an option is given twice"
    return found


def test_every_batch_job_is_found_again_and_says_where_it_writes() -> None:
    assert sbatch_options(Site(), Asked(), SUBMISSION) == [
        "--parsable",
        "--no-requeue",
        "--job-name=rung-s-llm-7-1",
        "--comment=rung/s/llm-7/1",
        "--output=/home/me/.rung/log",
        "--open-mode=append",
        "--chdir=/home/me/.rung/work",
        "--export-file=/dev/null",
        "--signal=B:USR2@120",
        "--nodes=1",
        "--ntasks-per-node=1",
    ]


def test_the_settings_of_the_site_become_options() -> None:
    site = Site("gpu,long", "lab", "high", 43_200, memory=(64 << 30) + 1, cpus_per_gpu=8, options=("--constraint=ib",))
    found = values(chosen_options(site, Asked(gpus=2, gpu="A100")))
    assert found == {
        "partition": "gpu,long",
        "account": "lab",
        "qos": "high",
        "time": "720",
        "nodes": "1",
        "ntasks-per-node": "1",
        "cpus-per-task": "16",
        "mem": "65537M",
        "gres": "gpu:a100:2",
        "constraint": "ib",
    }


def test_what_the_job_asks_for_wins_over_the_site() -> None:
    site = Site(
        "gpu", "lab", "high", 43_200, memory=1 << 30, cpus_per_gpu=8, options=("--nice=5", "--exclusive", "--wckey=a")
    )
    asked = Asked(3600, 4, 1, "P100", 3, 2 << 30, "long", "mine", "low", ("--nice=9", "--exclusive"))
    found = values(chosen_options(site, asked))
    assert [found[key] for key in ("partition", "account", "qos", "time", "nodes")] == [
        "long",
        "mine",
        "low",
        "60",
        "4",
    ]
    assert [found[key] for key in ("cpus-per-task", "mem", "gres", "nice", "wckey")] == [
        "3",
        "2048M",
        "gpu:p100:1",
        "9",
        "a",
    ]
    assert "exclusive" in found


@pytest.mark.parametrize(
    ("names", "option", "asked", "word"),
    [
        ((), GpuOption.GRES, Asked(gpus=1, gpu="TITANRTX"), "--gres=gpu:titanrtx:1"),
        ((), GpuOption.GPUS, Asked(gpus=1, gpu="TITANRTX"), "--gpus-per-node=titanrtx:1"),
        ((("A100", "nvidia_a100-sxm4"),), GpuOption.GRES, Asked(gpus=4, gpu="A100"), "--gres=gpu:nvidia_a100-sxm4:4"),
        ((("A100", ""),), GpuOption.GRES, Asked(gpus=4, gpu="A100"), "--gres=gpu:4"),
        ((), GpuOption.GPUS, Asked(gpus=2), "--gpus-per-node=2"),
    ],
)
def test_gpus_are_asked_for_by_the_names_of_the_site(
    names: tuple[tuple[str, str], ...], option: GpuOption, asked: Asked, word: str
) -> None:
    assert word in chosen_options(Site(gpu_names=names, gpu_option=option), asked)


def test_only_one_of_the_options_for_memory_is_given() -> None:
    site = Site(options=("--mem-per-gpu=32G",))
    assert "--mem-per-gpu=32G" in chosen_options(site, Asked())
    assert values(chosen_options(site, Asked(memory=1 << 30))).keys() & {"mem", "mem-per-gpu"} == {"mem"}


@pytest.mark.parametrize(
    ("warn", "time", "word"),
    [(120, None, "B:USR2@120"), (120, 600, "B:USR2@120"), (120, 100, "B:USR2@50"), (0, 600, None)],
)
def test_the_signal_before_the_limit_leaves_at_least_half_of_the_time(
    warn: int, time: int | None, word: str | None
) -> None:
    assert values(sbatch_options(Site(warn=warn), Asked(time=time), SUBMISSION)).get("signal") == word


def test_the_variables_of_the_batch_job_come_from_a_file() -> None:
    said = replace(SUBMISSION, variables="/home/me/.rung/variables")
    assert "--export-file=/home/me/.rung/variables" in sbatch_options(Site(), Asked(), said)
    with pytest.raises(ValueError, match="no path that Slurm can"):
        # A number would be a file that is open already.
        sbatch_options(Site(), Asked(), replace(SUBMISSION, variables="3"))


@pytest.mark.parametrize(
    ("site", "gpu"), [(Site(), "A100:1"), (Site(), "A 100"), (Site(gpu_names=(("A100", "a100:4,other"),)), "A100")]
)
def test_the_name_of_a_gpu_is_one_name(site: Site, gpu: str) -> None:
    with pytest.raises(ValueError, match="one plain name"):
        chosen_options(site, Asked(gpus=1, gpu=gpu))


def test_bad_nodes_are_excluded_and_what_is_no_node_is_left_out() -> None:
    bad = ("n2", "n1", "n1", "--wrap=x", "n[1-3]", "a,b", "")
    found = values(sbatch_options(Site(), Asked(), replace(SUBMISSION, avoid=bad)))
    assert found["exclude"] == "n1,n2"


def test_a_percent_sign_in_a_path_is_no_pattern() -> None:
    found = values(sbatch_options(Site(), Asked(), replace(SUBMISSION, log="/home/50%j/log")))
    assert found["output"] == "/home/50%%j/log"


@pytest.mark.parametrize("path", ["log", "", "/a\\b", "/a\nb", "/a\0b"])
def test_a_path_that_slurm_reads_otherwise_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no path that Slurm can write to"):
        sbatch_options(Site(), Asked(), replace(SUBMISSION, log=path))


# Further options


@pytest.mark.parametrize("word", ["--constraint=a100&ib", "--exclusive", "--mem-per-gpu=32G", "--lustre=on"])
def test_a_site_may_add_options(word: str) -> None:
    assert site_option(word) == word


@pytest.mark.parametrize("option", sorted(OWN_OPTIONS))
def test_what_rung_sets_itself_is_refused_by_its_name_and_by_every_beginning_of_it(option: str) -> None:
    for end in range(2, len(option) + 1):
        for word in (f"--{option[:end]}", f"--{option[:end]}=x"):
            with pytest.raises(ValueError, match="Rung sets --"):
                site_option(word)
    assert option not in JOB_OPTIONS


@pytest.mark.parametrize(
    "word",
    ["-n4", "--", "--nice b", "--nice=b c", "x", "--nice=\n", "--N=1", "--nice=", "--nice=é", 3, "--nice=\0"],
)
def test_what_is_not_one_word_with_dashes_is_refused(word: object) -> None:
    for check in (site_option, job_option):
        with pytest.raises(ValueError, match="should be one word such as --constraint=infiniband"):
            check(word)


@pytest.mark.parametrize(
    "word", ["--wrap=x", "--bbf=/etc/passwd", "--nodelist=/etc/passwd", "--lustre=on", "--constr=x"]
)
def test_a_job_file_may_add_only_known_options_by_their_whole_name(word: str) -> None:
    with pytest.raises(ValueError, match="a job file may not set this one; it may set --begin,"):
        job_option(word)
    assert job_option("--constraint=ib") == "--constraint=ib"


# Hostile values

ANY = st.text(max_size=30) | st.from_regex(r"\A[a-z0-9 ,=\-\n%:]{1,20}\Z")
WORD = re.compile(r"--([a-z-]+)(?:=[^\s\x00-\x1f\x7f-\x9f]+)?")


@given(
    st.builds(Asked, partition=ANY, account=ANY, qos=ANY, gpu=ANY, gpus=st.just(1), options=st.tuples(ANY)),
    st.builds(Site, partition=ANY, account=ANY, options=st.tuples(ANY), gpu_names=st.tuples(st.tuples(ANY, ANY))),
    st.builds(Submission, name=ANY, mark=ANY, log=st.just("/log"), folder=st.just("/w"), avoid=st.tuples(ANY, ANY)),
)
def test_whatever_the_values_are_none_becomes_another_option(asked: Asked, site: Site, submission: Submission) -> None:
    usual = {*values(sbatch_options(Site(), Asked(), SUBMISSION)), "partition", "account", "qos", "gres", "exclude"}
    for tried in ((site, asked), (site, Asked()), (Site(), asked), (Site(), replace(asked, options=()))):
        for said in (submission, replace(SUBMISSION, avoid=submission.avoid)):
            try:
                options = sbatch_options(*tried, said)
            except ValueError:
                continue
            matches = [WORD.fullmatch(word) for word in options]
            assert all(matches), options
            further = {match[1] for match in matches if match} - usual
            assert further <= JOB_OPTIONS or not any(own.startswith(each) for each in further for own in OWN_OPTIONS)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Asked(), None),
        (Asked(gpus=1, gpu="A100"), "A100:1"),
        (Asked(gpus=1), "1 GPU"),
        (Asked(gpus=4), "4 GPUs"),
        (Asked(gpus=4, gpu="A100", nodes=2), "A100:4 on each of 2 nodes"),
    ],
)
def test_the_gpus_that_are_asked_for_as_text(asked: Asked, text: str | None) -> None:
    assert asked.gpu_text == text
