"""Tests validations: what is refused, what is run, and what counts as the same content."""

from dataclasses import replace

import pytest
import yaml

from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.validation.verdict import Verdict
from rung.runner.state.store import Store
from rung.runner.validation.record import Validation, digest_of, find_or_begin, run_spec, validations

JOB = {
    "name": "ocr",
    "run": "python train.py --precision {precision}",
    "success": {"metric": "hmean", "above": 0.5},
    "checkpoint": {"dir": "/shared/checkpoints"},
    "recovery": {"max_attempts": 5, "step_back": 100, "infra_retries": 2},
}


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "rung.db")
    yield made
    made.close()


def spec(**more):
    return JobSpec.model_validate({**JOB, **more})


def asked(tmp_path, digest="d", **more):
    return replace(Validation(0, digest, spec(), tmp_path, "hmean", 1.0), **more)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"success": None}, "there is no number to compare"),
        ({"knobs": {"precision": "fp32"}}, "there is nothing to validate"),
        ({"run": ["true"]}, "nothing in run, envs or files carries {precision}"),
        ({"validation": {"pass_below": 3}}, "marginal_below must not be less than pass_below"),
        ({"validation": {"better": "more"}}, "validation.better"),
        ({"recovery": {"validat": "before"}}, "did you mean 'validate'?"),
        ({"recovery": {"validate": "after"}}, "'off' or 'before'"),
        ({"success": None, "recovery": {"validate": "before"}}, "recovery.validate: before needs a number"),
        ({"run": ["true"], "recovery": {"validate": "before"}}, "recovery.validate: before cannot be done"),
    ],
)
def test_a_job_that_cannot_be_validated_is_refused_in_one_line(tmp_path, run_rung, fields, message):
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({**JOB, **fields}))
    code, _, err = run_rung("validate", file)
    assert code == 2 and err.count("\n") == 1 and message in err, err


@pytest.mark.parametrize("target", ["no-such", "no/such", "no-such.yaml"])
def test_a_target_that_is_no_job_and_no_file_is_refused(run_rung, target):
    code, _, err = run_rung("validate", target)
    assert code == 2 and target in err


def test_both_runs_differ_from_the_job_only_in_precision_and_recovery(tmp_path):
    one, other = (run_spec(asked(tmp_path), baseline=baseline) for baseline in (True, False))
    assert (one.knobs.precision, other.knobs.precision) == ("fp32", None)
    # Only the run in FP16 can come near FP16's limit.
    assert other.envs == {**one.envs, "RUNG_NEAR_LIMIT": "1"} and "RUNG_NEAR_LIMIT" not in one.envs
    assert one.model_copy(update={"knobs": other.knobs, "name": other.name, "envs": other.envs}) == other
    assert (one.run, one.success) == (spec().run, spec().success)
    assert (one.recovery.max_attempts, one.recovery.infra_retries, one.recovery.step_back) == (1, 2, None)
    # In a shared folder the run would resume from a checkpoint of another run.
    assert one.checkpoint.dir == "checkpoints" and one.envs["RUNG_USAGE"] == "1"
    long = asked(tmp_path, spec=spec(name="x" * 100, recovery={"validate": "before"}))
    assert run_spec(long, baseline=True).recovery.gate == "off"
    assert JobSpec.model_validate_json(run_spec(long, baseline=True).model_dump_json())


def test_a_validation_survives_the_store(tmp_path, store):
    with store.transaction():
        made = find_or_begin(store, asked(tmp_path, for_job="ocr-1", blocks_job=True))
    assert validations(store) == [made] and made.id == "v1"
    decided = made.but(verdict=Verdict.FAIL, because="so it is", baseline="a", candidate="b")
    with store.transaction():
        store.put_validation(1, decided.to_dict(), active=False)
    assert validations(store) == [decided] and validations(store, active=True) == []


def test_a_decided_or_active_validation_of_the_same_content_is_used_again(tmp_path, store):
    def find(digest, *, again=False, **more):
        with store.transaction():
            return find_or_begin(store, asked(tmp_path, digest, **more), again=again).number

    def decide(number, verdict):
        with store.transaction():
            store.put_validation(number, asked(tmp_path, verdict=verdict).to_dict(), active=False)

    assert find("d") == 1
    # The run wrote a file beside its script: it is still the same validation.
    assert [find("d"), find("changed"), find("other", metric="loss")] == [1, 1, 2]
    decide(1, Verdict.PASS)
    decide(2, Verdict.UNDECIDED)
    assert [find("d"), find("d", again=True)] == [1, 3]
    decide(3, Verdict.FAIL)
    assert find("d") == 3, "the newest counts"
    assert find("other", metric="loss") == 4, "an undecided one is run again"


def test_the_digest_depends_only_on_what_changes_the_result(tmp_path):
    home = tmp_path / "home"
    (tmp_path / ".gitignore").write_text("out.json\n")
    (tmp_path / "train.py").write_text("print(1)")

    def digest(metric="hmean", **more):
        return digest_of(spec(**more), tmp_path, metric, home)

    first = digest()
    for name, text in {"data.bin": "x", "out.json": "{}", "home/a.json": "{}", "__pycache__/a.py": "x"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "job.yaml").write_text("name: ocr\nrun: python train.py\n")
    same = digest()
    (tmp_path / "job.yaml").write_text("name: ocr\nrun: python train.py\nrecovery: {validate: before}\n")
    assert digest(name="other", priority=3, recovery={"validate": "before"}) == same == digest()
    assert first != same  # a new job file counts; its content does not, because it is in the spec
    others = {digest("loss"), digest(knobs={"lr": 0.1}), digest(validation={"pass_below": 0.5})}
    (tmp_path / "train.py").write_text("print(2)")
    assert len({same, *others, digest()}) == 5


def test_a_dry_run_shows_the_validation_that_runs_first(tmp_path, run_rung):
    def preview(**fields):
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump({**JOB, **fields}))
        return run_rung("launch", "--dryrun", file)[1]

    assert "first its validation against FP32" in preview(recovery={"validate": "before"})
    assert "validation" not in preview()
