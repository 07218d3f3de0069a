"""Tests the commands that start jobs at a site. What a shell reads is run in a real one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.site.settings import Site, Start
from rung.jobs.site.starting import OF_SLURM, REMOVED, Command, Mount, start_command

DIGEST = f"sha256:{'ab' * 32}"
IMAGE = f"registry.example:5000/team/train:v2@{DIGEST}"
MOUNTS = (Mount("/lustre/job", "/rung/job"), Mount("/lustre/inside", "/rung/inside", read_only=True))
COMMAND = Command(
    ("python", "train.py", "--lr", "0.1 $(x)"),
    "/rung/work",
    image=IMAGE,
    mounts=MOUNTS,
    variables=("HOME", "RUNG_JOB", "HF_TOKEN"),
    scratch="/lustre/tmp",
    gpus=2,
    cpus=8,
)
CONTAINERS = [Start.APPTAINER, Start.PYXIS, Start.PODMAN]


def change(**fields: object) -> Command:
    return Command(**{**COMMAND.__dict__, **fields})  # type: ignore[arg-type]


# Containers


def test_apptainer_gets_the_image_by_digest_and_names_of_variables_without_values() -> None:
    words = start_command(Site(start=Start.APPTAINER), COMMAND)
    at = words.index("apptainer")
    assert words[at:] == [
        *("apptainer", "exec", "--containall", "--no-eval", "--nv", "--workdir=/lustre/tmp"),
        *("--bind=/lustre/job:/rung/job", "--bind=/lustre/inside:/rung/inside:ro", "--pwd=/rung/work"),
        f"docker://registry.example:5000/team/train@{DIGEST}",
        *COMMAND.argv,
    ]
    assert words[3:at] == ["rung", "", "", "", "0", str(2 + len(OF_SLURM)), "RUNG_JOB", "HF_TOKEN", *OF_SLURM]


def test_pyxis_gets_the_registry_and_the_digest_as_enroot_writes_them() -> None:
    assert start_command(Site(start=Start.PYXIS), COMMAND) == [
        *("srun", "--export=ALL", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpus-per-task=8"),
        *("--kill-on-bad-exit=1", f"--container-image=registry.example:5000#team/train:{DIGEST}"),
        "--container-mounts=/lustre/job:/rung/job,/lustre/inside:/rung/inside:ro,/lustre/tmp:/tmp",
        *("--container-workdir=/rung/work", "--no-container-mount-home", "--no-container-remap-root"),
        *("--no-container-entrypoint", f"--container-env=HOME,RUNG_JOB,HF_TOKEN,{','.join(OF_SLURM)}"),
        *COMMAND.argv,
    ]


def test_podman_runs_without_rights_in_the_limits_of_the_batch_job() -> None:
    words = start_command(Site(start=Start.PODMAN), change(shm=1 << 30, name="rung-s-llm-7-1"))
    assert words == [
        *("/bin/sh", "-c", REMOVED, "rung", "rung-s-llm-7-1"),
        *("podman", "run", "--rm", "--init", "--name=rung-s-llm-7-1", "--userns=keep-id", "--cap-drop=ALL"),
        *("--security-opt=no-new-privileges", "--security-opt=label=disable", "--read-only", "--cgroups=disabled"),
        *(
            "--ulimit=host",
            "--log-driver=none",
            "--network=private",
            "--device=nvidia.com/gpu=all",
            f"--shm-size={1 << 30}b",
        ),
        *("--volume=/lustre/job:/rung/job", "--volume=/lustre/inside:/rung/inside:ro", "--volume=/lustre/tmp:/tmp"),
        "--workdir=/rung/work",
        *(f"--env={name}" for name in ("HOME", "RUNG_JOB", "HF_TOKEN", *OF_SLURM)),
        '--entrypoint=["python"]',
        f"registry.example:5000/team/train@{DIGEST}",
        *COMMAND.argv[1:],
    ]


@pytest.mark.parametrize("start", CONTAINERS)
def test_a_job_without_gpus_gets_none(start: Start) -> None:
    words = start_command(Site(start=start), change(gpus=0))
    assert not {"--nv", "--device=nvidia.com/gpu=all"} & {*words}


@pytest.mark.parametrize(
    ("network", "nodes", "given"),
    [("own", 1, "private"), ("none", 1, "none"), ("host", 1, "host"), ("own", 2, "host"), ("none", 2, "none")],
)
def test_podman_has_the_network_that_was_asked_for(network: str, nodes: int, given: str) -> None:
    assert f"--network={given}" in start_command(Site(start=Start.PODMAN), change(network=network, nodes=nodes))


@pytest.mark.parametrize(
    ("name", "full", "enroot"),
    [
        ("train", "docker.io/library/train@", "library/train:"),
        ("pytorch/pytorch:2.9", "docker.io/pytorch/pytorch@", "pytorch/pytorch:"),
        ("docker.io/pytorch/pytorch", "docker.io/pytorch/pytorch@", "pytorch/pytorch:"),
        ("localhost/train", "localhost/train@", "localhost#train:"),
        ("r.example/a/b/c", "r.example/a/b/c@", "r.example#a/b/c:"),
    ],
)
def test_an_image_has_the_same_registry_for_every_tool(name: str, full: str, enroot: str) -> None:
    command = change(image=f"{name}@{DIGEST}")
    assert f"docker://{full}{DIGEST}" in start_command(Site(start=Start.APPTAINER), command)
    assert f"{full}{DIGEST}" in start_command(Site(start=Start.PODMAN), command)
    assert f"--container-image={enroot}{DIGEST}" in start_command(Site(start=Start.PYXIS), command)


@pytest.mark.parametrize(
    ("start", "word"),
    [
        (Start.APPTAINER, "/lustre/train.sif"),
        (Start.PYXIS, "--container-image=/lustre/train.sif"),
        (Start.PODMAN, "docker-archive:/lustre/train.sif"),
    ],
)
@pytest.mark.parametrize("image", [IMAGE, DIGEST])
def test_a_file_of_the_site_is_used_for_the_image_that_it_holds(start: Start, word: str, image: str) -> None:
    site = Site(start=start, images=((image, "/lustre/train.sif"),))
    assert word in start_command(site, change(image=image))


@pytest.mark.parametrize("start", [Start.PLAIN, Start.APPTAINER, Start.PODMAN])
def test_on_several_nodes_each_gets_one_process_with_all_its_cpus(start: Start) -> None:
    image = IMAGE if start.contains else None
    alone = start_command(Site(start=start), change(image=image, network="host"))
    words = start_command(Site(start=start), change(image=image, network="host", nodes=4))
    assert words == [
        *("srun", "--export=ALL", "--nodes=4", "--ntasks=4", "--ntasks-per-node=1", "--cpus-per-task=8"),
        "--kill-on-bad-exit=1",
        *alone,
    ]


# Refusals


@pytest.mark.parametrize(
    ("start", "fields", "message"),
    [
        (Start.PLAIN, {}, "starts jobs without a container .* leave the image out"),
        (Start.APPTAINER, {"image": None}, "starts jobs in containers .start: apptainer., so name an image"),
        (Start.PODMAN, {"image": DIGEST}, "can pull no image by its id"),
        (Start.PODMAN, {"image": "train:latest"}, "can pull no image"),
        (Start.PLAIN, {"image": None, "argv": ()}, "must begin with the name of a program"),
        (Start.PYXIS, {"argv": ("--container-image=evil", "x")}, "must begin with the name of a program"),
        (Start.PYXIS, {"argv": ("x", "a\0b")}, "must begin with the name of a program"),
        (Start.PODMAN, {"variables": ("A=b",)}, "is no name of a variable"),
        (Start.APPTAINER, {"variables": ("A;reboot",)}, "is no name of a variable"),
        (Start.APPTAINER, {"scratch": ""}, "cannot be mounted"),
        (Start.PYXIS, {"cwd": "work"}, "cannot be mounted"),
    ],
)
def test_what_cannot_be_started_is_refused(start: Start, fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        start_command(Site(start=start), change(**fields))


@pytest.mark.parametrize("start", CONTAINERS)
@pytest.mark.parametrize("path", ["/a:b", "/a,b", "/a b", "/a\tb", "/a\nb", "/a/../b", "a", '/a"b', "/a\\b", "/a'b"])
def test_no_path_can_become_two_mounts(start: Start, path: str) -> None:
    for mount in (Mount(path, "/data"), Mount("/data", path)):
        with pytest.raises(ValueError, match="cannot be mounted"):
            start_command(Site(start=start), change(mounts=(mount,)))


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize("start", CONTAINERS)
@given(argv=st.tuples(TEXT.filter(lambda word: not word.startswith("-")), TEXT, TEXT))
def test_the_words_of_the_command_stay_words_and_come_last(start: Start, argv: tuple[str, ...]) -> None:
    usual = start_command(Site(start=start), change(argv=("a", "b", "c")))
    words = start_command(Site(start=start), change(argv=argv))
    assert words[-2:] == [*argv[1:]] and len(words) == len(usual)
    if start is Start.PODMAN:
        assert [json.loads(word.partition("=")[2]) for word in words if word.startswith("--entrypoint=")] == [[argv[0]]]
    else:
        assert words[-3] == argv[0] and words[:-3] == usual[:-3]


# In a shell


NASTY = ("show", "a b", "$(reboot)", "`x`", "'", '"', "*", "", "-n", "--", "\n", "é")


def run(words: list[str], **env: str) -> tuple[int, str]:
    path = f"{env.pop('BIN', '')}:{os.environ['PATH']}"
    done = subprocess.run(words, env={"PATH": path, **env}, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with a program that shows its arguments and one variable, one word a line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder / "show", 'printf "<%s>\\n" "$@" "$LOADED"')
    return folder


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def shown(*words: str) -> str:
    return "".join(f"<{word}>\n" for word in words)


def test_a_plain_command_without_settings_is_itself() -> None:
    assert start_command(Site(), Command(NASTY, "/work")) == [*NASTY]


def test_modules_are_loaded_in_a_shell_that_is_no_login_shell(tmp_path: Path, programs: Path) -> None:
    init = tmp_path / "init"
    # A file that changes the arguments of the shell that reads it.
    init.write_text('module() { [ "$1 $2" != "load broken" ] && export LOADED="$LOADED $2"; }\nset -- gone\nshift\n')
    site = Site(modules=("cuda/12.4", "gcc"), module_init=str(init))
    assert run(start_command(site, Command(NASTY, "/")), BIN=str(programs)) == (0, shown(*NASTY[1:], " cuda/12.4 gcc"))
    code, said = run(start_command(Site(modules=("broken",), module_init=str(init)), Command(NASTY, "/")))
    assert code == 125 and said.startswith("rung: module load broken failed on ") and said.count("\n") == 1


def test_a_node_without_modules_is_told(tmp_path: Path, programs: Path) -> None:
    site = Site(modules=("cuda",), module_init=str(tmp_path / "none"))
    code, said = run(start_command(site, Command(NASTY, "/")), BIN=str(programs))
    assert code == 125 and said.startswith("rung: no file defines the command module: name it as module_init on ")


def test_the_python_of_a_venv_is_the_first_one(tmp_path: Path, programs: Path) -> None:
    venv = tmp_path / "venv"
    program(venv / "bin" / "python", 'echo "$VIRTUAL_ENV ${PYTHONHOME-none} $*"')
    words = start_command(Site(venv=str(venv)), Command(("python", "train.py"), "/"))
    assert run(words, PYTHONHOME="/old") == (0, f"{venv} none train.py\n")
    code, said = run(start_command(Site(venv=str(tmp_path)), Command(("python",), "/")))
    assert code == 125 and said.startswith(f"rung: no {tmp_path}/bin/python on ")


def test_a_conda_environment_is_activated_without_its_shell_functions(tmp_path: Path, programs: Path) -> None:
    conda = tmp_path / "conda" / "bin" / "conda"
    program(conda, '[ "$3" = train ] && echo "export LOADED=\'$1 $2 $3\'"')
    words = start_command(Site(conda="train"), Command(NASTY, "/"))
    for found in ({"CONDA_EXE": str(conda)}, {"BIN": f"{programs}:{conda.parent}"}):
        given = {"BIN": str(programs), **found}
        assert run(words, **given) == (0, shown(*NASTY[1:], "shell.posix activate train"))
    words = start_command(Site(conda="other"), Command(NASTY, "/"))
    code, said = run(words, CONDA_EXE=str(conda))
    assert code == 125 and said.startswith("rung: conda activate other failed on ")


def test_apptainer_finds_the_values_of_the_variables_in_its_environment(programs: Path) -> None:
    script = 'env | grep ^APPTAINERENV_; printf \'<%s>\' "$HF_TOKEN"; for last; do :; done; echo "$last"'
    program(programs / "apptainer", script)
    value = "a 'b' \"c\" $(reboot) `x` \\ $HOME"
    command = change(argv=("show", "$(reboot)"), variables=("HF_TOKEN", "UNSET", "HOME"))
    code, said = run(
        start_command(Site(start=Start.APPTAINER), command),
        BIN=str(programs),
        HF_TOKEN=value,
        HOME="/h",
        SLURM_JOB_ID="7",
    )
    lines = said.splitlines()
    assert code == 0 and lines[-1] == f"<{value}>$(reboot)"
    assert sorted(lines[:-1]) == [f"APPTAINERENV_HF_TOKEN={value}", "APPTAINERENV_SLURM_JOB_ID=7"]
