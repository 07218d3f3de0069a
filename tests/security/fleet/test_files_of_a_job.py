"""Tests that a job on a host cannot make Rung read, move or run what is not its own, whatever links it leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import set_aside_in_files
from rung.runner.checkpoints.mirror import Original, copy_newest
from rung.runner.seams.engine import Request
from tests.fleet.containers.conftest import STORE, Attempts

PATTERN = "step_*.pt"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMALLORY mallory\n"


def keys(attempts: Attempts) -> Path:
    return attempts.host.work / ".ssh"


def aside(request: Request) -> Path:
    return Path(set_aside_in_files(1, request.attempt))


def ended(attempts: Attempts, script: str) -> Request:
    request = attempts.sh(script)
    assert attempts.end(request).exit_code == 0, attempts.log(request)
    return request


def test_a_link_in_place_of_the_old_set_aside_folder_gets_no_key_into_the_account(attempts: Attempts) -> None:
    """0.1.0 moved the job's own authorized_keys into the ~/.ssh of the account."""
    keys(attempts).mkdir(exist_ok=True)
    # The account's own, so that nothing but Rung stands in the way.
    attempts.host.run("chown", "rung", "/home/rung/.ssh")
    before = {path.name: path.read_bytes() for path in keys(attempts).iterdir()}
    request = ended(
        attempts,
        f"mkdir -p /rung/job/.set-aside && ln -s /home/rung/.ssh /rung/job/.set-aside/attempt-2 && "
        f"echo '{KEY.strip()}' > /rung/job/checkpoints/authorized_keys2",
    )
    following = attempts.again(request)
    attempts.engine.move(following, ["authorized_keys2"], aside(following))
    assert {path.name: path.read_bytes() for path in keys(attempts).iterdir()} == before
    place = attempts.host.work / f".rung/{STORE}/jobs/a-1/set-aside/1/attempt-2/authorized_keys2"
    assert place.read_text() == KEY


LINKS_STAYS = """#!/bin/busybox sh
/bin/busybox rm -rf /rung/files/stays /rung/files/outgoing
/bin/busybox ln -s /home/rung /rung/files/stays
"""
SPOILS_PROGRAMS = f"""
for each in mv cp find stat ls sh mkdir rm readlink chmod; do
    /bin/busybox rm -f /bin/$each
    printf '%s' '{LINKS_STAYS}' >/bin/$each
    /bin/busybox chmod 755 /bin/$each
done
"""


def test_a_hostile_image_has_no_part_in_the_work_on_files(attempts: Attempts, tmp_path: Path) -> None:
    """Its programs, run with the folder of the job, would link the job's folder to the home of the account."""
    host, tiny = attempts.host, attempts.fleet.images["tiny"]
    request = ended(attempts, "for n in 5 6; do echo x >/rung/job/checkpoints/step_$n.pt; done")
    host.docker("run", "--name=spoilt", "--user=0", tiny, "/bin/busybox", "sh", "-c", SPOILS_PROGRAMS)
    image = host.docker("commit", "spoilt").strip()
    host.docker("rm", "spoilt")
    assert request.container is not None
    following = attempts.again(request, container=replace(request.container, image=image))
    entry, _ = sorted(attempts.engine.list_files(following, PATTERN), key=lambda each: each.name)
    attempts.engine.fetch(following, entry, tmp_path / "mirror")
    attempts.engine.move(following, ["step_6.pt"], aside(following))
    host.docker("rmi", image)
    root = host.work / f".rung/{STORE}/jobs/a-1"
    assert not [path for path in root.iterdir() if path.is_symlink()]
    assert (root / "set-aside" / "1" / "attempt-2" / "step_6.pt").read_text() == "x\n"
    assert (tmp_path / "mirror" / "step_5.pt").read_text() == "x\n"


def test_a_link_to_another_jobs_checkpoints_shows_and_moves_nothing_of_it(attempts: Attempts) -> None:
    """0.1.0 listed the other job's checkpoints and set them aside into the folder of the thief."""
    victim = replace(attempts.request("true"), job_id="b-1", paths=attempts.home.attempt("b-1", 1))
    attempts.engine.start(replace(victim, argv=("sh", "-c", "echo mine > /rung/job/checkpoints/step_5.pt")), {})
    assert attempts.end(victim).exit_code == 0
    there = f"/home/rung/.rung/{STORE}/jobs/b-1/stays/1/checkpoints"
    request = ended(attempts, f"rmdir /rung/job/checkpoints && ln -s {there} /rung/job/checkpoints")
    assert attempts.engine.list_files(request, PATTERN) == []
    following = attempts.again(request)
    attempts.engine.move(following, ["step_5.pt"], aside(following))
    assert [entry.name for entry in attempts.engine.list_files(victim, PATTERN)] == ["step_5.pt"]
    assert attempts.engine.list_files(replace(following, checkpoint_dir=aside(following)), "*") == []


def test_a_link_to_a_private_file_of_the_account_is_never_copied(attempts: Attempts, tmp_path: Path) -> None:
    """0.1.0 mirrored the file and brought it back as a plain one that the job could read."""
    secret = attempts.host.work / "private"
    secret.write_text("secret of the account")
    secret.chmod(0o600)
    attempts.host.run("chown", "rung", "/home/rung/private")
    request = ended(
        attempts,
        "cd /rung/job/checkpoints && ln -s /home/rung/private step_5.pt && mkdir step_6.pt && "
        "ln -s /home/rung/private step_6.pt/weights && echo x > step_6.pt/plain && mkfifo step_6.pt/pipe step_7.pt",
    )
    (entry,) = attempts.engine.list_files(request, PATTERN)
    assert (entry.name, entry.is_folder, entry.size) == ("step_6.pt", True, 2)
    copy = attempts.engine.fetch(request, entry, tmp_path / "mirror")
    assert [path.name for path in copy.iterdir()] == ["plain"]
    with pytest.raises(EngineError, match=r"step_5\.pt"):
        attempts.engine.fetch(request, replace(entry, name="step_5.pt", is_folder=False), tmp_path / "mirror")
    assert not any("secret" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    # Nothing is left of what was offered.
    assert list((attempts.host.work / f".rung/{STORE}/jobs/a-1/outgoing").iterdir()) == []


def test_a_link_inside_the_folder_of_the_job_is_what_it_leads_to(attempts: Attempts, tmp_path: Path) -> None:
    request = ended(attempts, "cd /rung/job/checkpoints && echo good > step_5.pt && ln -s step_5.pt step_9.pt")
    sizes = {entry.name: entry for entry in attempts.engine.list_files(request, PATTERN)}
    assert {name: entry.size for name, entry in sizes.items()} == {"step_5.pt": 5, "step_9.pt": 5}
    assert attempts.engine.fetch(request, sizes["step_9.pt"], tmp_path / "here").read_text() == "good\n"


def test_the_mirror_takes_no_more_than_its_limit(attempts: Attempts, tmp_path: Path) -> None:
    """0.1.0 copied all of a sparse file of 150 MiB that a link led to, with a limit of 1 MiB."""
    request = ended(
        attempts,
        "cd /rung/job/checkpoints && dd if=/dev/zero of=big bs=1 count=1 seek=157286400 2>/dev/null && "
        "ln -s big step_5.pt",
    )
    copied = copy_newest(Original(attempts.engine, request, PATTERN), [], {}, tmp_path / "mirror", 1 << 20)
    assert copied.entry is None
    assert not (tmp_path / "mirror").exists() or not list((tmp_path / "mirror").iterdir())


def test_shipped_code_that_was_changed_on_the_host_never_runs(attempts: Attempts) -> None:
    """0.1.0 trusted a tree on the host by its name alone."""
    ended(attempts, "true")
    trees = attempts.host.work / f".rung/{STORE}/trees"
    (wrapper,) = trees.glob("*/files/contained.sh")
    wrapper.write_text("#!/bin/sh\necho owned\n")
    # A new controller, which remembers nothing.
    attempts.new_engine()
    request = attempts.request("true")
    with pytest.raises(EngineError, match="files that Rung had sent were changed there"):
        attempts.engine.start(request, {})
    attempts.engine.start(request, {})
    assert attempts.end(request).exit_code == 0
    assert "owned" not in attempts.log(request)


def test_a_file_that_was_added_to_shipped_code_is_noticed(attempts: Attempts) -> None:
    ended(attempts, "true")
    (inside,) = (attempts.host.work / f".rung/{STORE}/trees").glob("*/files/contained.sh")
    (inside.parent / "torch.py").write_text("print('owned')\n")
    attempts.new_engine()
    with pytest.raises(EngineError, match="files that Rung had sent were changed there"):
        attempts.start("true")
