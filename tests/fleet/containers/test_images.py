"""Tests images on real hosts: pulled by digest, sent over the connection, pinned, checked against a GPU."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError, UsageError
from rung.jobs.model.gpu import Gpu
from rung.jobs.spec.load import load_spec
from rung.runner.session.image_ops import lock, send
from tests.fleet.containers.conftest import Attempts
from tests.fleet.host import Host

P100 = Gpu("Tesla P100-PCIE-16GB", (6, 0))
A100 = Gpu("NVIDIA A100-SXM4-40GB", (8, 0))
NOWHERE = "registry.fleet:5000/rung/tiny@sha256:" + "0" * 64


def test_an_image_is_pulled_by_its_digest_and_the_progress_is_reported(attempts: Attempts) -> None:
    reported: list[str] = []
    attempts.engine.ensure_image(attempts.fleet.images["far"], reported.append)
    assert reported[0] == "turing is pulling registry.fleet:5000/rung/far"
    assert " of " in reported[-1]
    before = len(reported)
    attempts.engine.ensure_image(attempts.fleet.images["far"], reported.append)
    assert len(reported) == before
    request = attempts.sh("echo from afar", image="far")
    assert attempts.end(request).exit_code == 0


def test_an_image_that_cannot_be_pulled_is_refused_with_advice(attempts: Attempts) -> None:
    with pytest.raises(EngineError, match=r"rung image send IMAGE turing"):
        attempts.engine.ensure_image(NOWHERE, lambda text: None)
    with pytest.raises(EngineError, match=r"turing has no image sha256:0+: send it there"):
        attempts.engine.ensure_image("sha256:" + "0" * 64, lambda text: None)
    with pytest.raises(EngineError, match="rung image send"):
        attempts.start("true", image=NOWHERE)
    assert attempts.containers() == []


@pytest.fixture
def environ(attempts: Attempts) -> dict[str, str]:
    return {"RUNG_HOSTS": str(attempts.fleet.inventory), "HOME": str(attempts.folder / "client")}


def build(host: Host, tag: str, *lines: str) -> str:
    """Build an image on a host and return its id."""
    host.run("docker", "build", "--quiet", "--network=none", f"--tag={tag}", "-", input="\n".join(lines).encode())
    return host.docker("inspect", "--format", "{{.Id}}", tag)


def archive(attempts: Attempts, maker: str) -> tuple[Path, str]:
    """Return the saved archive of an image that no registry has, and its id."""
    host = attempts.fleet.hosts["ampere"]
    image = build(host, "own", f"FROM {attempts.fleet.images['tiny-plain']}", f"LABEL by={maker}")
    host.docker("save", "--output", "/home/rung/own.tar", "own")
    return host.work / "own.tar", image


def test_an_image_is_sent_to_a_host_without_a_registry_and_runs_there(
    attempts: Attempts, environ: dict[str, str]
) -> None:
    sent: list[int] = []
    path, image = archive(attempts, "hand")
    assert send(str(path), "turing", environ, sent.append) == image
    assert sum(sent) > 1 << 20
    request = attempts.sh("echo sent", image=image)
    assert attempts.end(request).exit_code == 0
    assert attempts.log(request) == "sent\n"
    # The host has it now, so it is not sent again.
    assert send(str(path), "turing", environ, lambda size: pytest.fail("sent twice")) == image


def test_an_archive_without_exactly_one_image_or_with_a_wrong_id_is_refused(
    attempts: Attempts, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "x.tar").write_bytes(b"no archive")
    with pytest.raises(UsageError, match="is no archive of one image"):
        send(str(tmp_path / "x.tar"), "turing", environ, lambda size: None)
    lying = tmp_path / "lying.tar"
    with tarfile.open(archive(attempts, "good")[0]) as good, tarfile.open(lying, "w") as bad:
        for member in good:
            data = good.extractfile(member).read() if member.isfile() else b""  # type: ignore[union-attr]
            if member.name.endswith(".json") and member.name != "manifest.json" and "/" not in member.name:
                data = data.replace(b'"by":"good"', b'"by":"evil"')
                member.size = len(data)
            bad.addfile(member, io.BytesIO(data))
    with pytest.raises(EngineError, match="another id"):
        send(str(lying), "turing", environ, lambda size: None)
    with pytest.raises(UsageError, match="no such host; known: turing"):
        send(str(lying), "nobody", environ, lambda size: None)


def test_tags_are_pinned_as_the_hosts_resolve_them(attempts: Attempts, environ: dict[str, str]) -> None:
    job = attempts.folder / "job.yaml"
    tags = {"titanrtx": "registry.fleet:5000/rung/tiny:all", "p100": "registry.fleet:5000/rung/tiny:plain"}
    job.write_text(json.dumps({"name": "x", "run": "true", "image": tags, "resources": {"gpu": ["TITANRTX"]}}))
    found = {one.tag: (one.image, one.host) for one in lock(job, None, environ)}
    images = attempts.fleet.images
    assert found == {tags["titanrtx"]: (images["tiny"], "turing"), tags["p100"]: (images["tiny-plain"], "pascal")}
    assert load_spec(job).image == {"titanrtx": images["tiny"], "p100": images["tiny-plain"]}
    job.write_text(json.dumps({"name": "x", "run": "true", "image": "registry.fleet:5001/x:1"}))
    with pytest.raises(EngineError, match=r"registry.fleet:5001/x:1 cannot be pinned: .*ampere"):
        lock(job, None, environ)
    job.write_text(json.dumps({"name": "x", "run": "true", "image": "$(id)"}))
    with pytest.raises(UsageError, match="is not a name of an image"):
        lock(job, None, environ)


def test_a_gpu_that_the_image_has_no_kernels_for_is_refused_before_anything_runs(attempts: Attempts) -> None:
    images, engine = attempts.fleet.images, attempts.engine
    assert engine.incompatibility(images["tiny"], P100) is None
    reason = engine.incompatibility(images["tiny-current"], P100)
    assert reason is not None
    assert reason.startswith(
        "P100 (sm_60) needs a build that still has sm_60, such as a cu126 one; image registry.fleet"
    )
    assert "has kernels only for sm_75 sm_80 sm_90" in reason
    assert engine.incompatibility(images["tiny-current"], A100) is None
    # Nothing is known about an image without label and without torch, so it is accepted.
    assert engine.incompatibility(images["tiny-plain"], P100) is None
    assert "no CUDA kernels at all" in str(engine.incompatibility(images["train-cpu"], A100))


def test_the_kernels_of_an_image_without_the_label_are_read_from_its_torch(attempts: Attempts) -> None:
    script = "printf '#!/bin/sh\\necho a warning\\necho rung.cuda.archs sm_75 compute_90\\n' >/bin/python"
    image = build(
        attempts.host,
        "asked",
        f"FROM {attempts.fleet.images['tiny-plain']}",
        f"RUN {script} && chmod +x /bin/python",
    )
    assert "has kernels only for sm_75 compute_90" in str(attempts.engine.incompatibility(image, P100))
    # A real torch without CUDA kernels.
    assert attempts.engine.images._ask_torch(attempts.fleet.images["train-cpu"]) == ()
    attempts.wait(lambda: attempts.containers() == [], "all containers are gone")
