"""Tests which refusals of sbatch are waited for, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rung.jobs.model.errors import EngineError, HostUnreachable, NeverTaken
from rung.runner.engines.slurm.queue import QueueAway, SlurmQueue
from rung.runner.hosts.local_remote import LocalRemote
from rung.runner.seams.remote import OUTPUT_BYTES, CommandResult

# As Slurm 22.05 prints them.
CONTACT = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
BUSY = (
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
    "sbatch: error: Batch job submission failed: Resource temporarily unavailable"
)
SLOW = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
LIMIT = (
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
    "accounting/QOS policy (job submit limit, user's size and/or time limits)"
)
POLICY = LIMIT.partition("\n")[2]
TOO_LONG = LIMIT.replace("QOSMaxSubmitJobPerUserLimit", "QOSMaxWallDurationPerJobLimit")
NONE_SUCH = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
PARTITION = (
    "sbatch: error: invalid partition specified: gpus\n"
    "sbatch: error: Batch job submission failed: Invalid partition name specified"
)


class Answers(LocalRemote):
    """A login node where every command says the same."""

    def __init__(self, answer: CommandResult) -> None:
        super().__init__("lab", {})
        self.answer = answer

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        return self.answer


@pytest.mark.parametrize(
    ("said", "others", "later"),
    [
        *((said, others, True) for said in (CONTACT, BUSY, SLOW) for others in (False, True)),
        *((said, others, False) for said in (NONE_SUCH, PARTITION) for others in (False, True)),
        # Without another job of Rung's, a limit on their number can be reached by those of the user.
        *((LIMIT, others, True) for others in (False, True)),
        (POLICY, True, True),
        (POLICY, False, False),
        *((TOO_LONG, others, False) for others in (False, True)),
    ],
)
def test_only_what_may_pass_is_waited_for(said: str, others: bool, later: bool) -> None:
    last = said.rpartition("error: ")[2]
    with pytest.raises(EngineError, match="lab: the cluster does not take the job: ") as raised:
        SlurmQueue(Answers(CommandResult(1, b"", said.encode())), "abc").submit([], ["script"], others=others)
    assert isinstance(raised.value, QueueAway) is later
    assert last in str(raised.value) and "\n" not in str(raised.value)


def refusal(said: str, *options: str) -> EngineError:
    with pytest.raises(EngineError) as raised:
        SlurmQueue(Answers(CommandResult(1, b"", said.encode())), "abc").submit(options, ["script"], others=False)
    return raised.value


@pytest.mark.parametrize(("said", "advice"), [(NONE_SUCH, "ask for GPUs"), (PARTITION, "slurm.partition")])
def test_what_no_cluster_of_this_kind_will_ever_take_says_what_to_do(said: str, advice: str) -> None:
    error = refusal(said)
    assert isinstance(error, NeverTaken) and advice in str(error)


def test_nodes_that_are_missing_because_we_exclude_them_may_come_back() -> None:
    assert not isinstance(refusal(NONE_SUCH, "--exclude=ampere"), NeverTaken)
    assert isinstance(refusal(PARTITION, "--exclude=ampere"), NeverTaken)


def test_the_words_of_a_cluster_are_shown_without_their_control_codes() -> None:
    error = refusal("sbatch: error: Batch job submission failed: Invalid qos specification\033[31m\a")
    assert isinstance(error, NeverTaken) and "\033" not in str(error) and "\a" not in str(error)


def test_a_sbatch_that_does_not_end_may_have_submitted_the_job() -> None:
    with pytest.raises(HostUnreachable, match="lab: sbatch did not end in 50 s"):
        SlurmQueue(Answers(CommandResult(124, b"", b"")), "abc").submit([], ["script"], others=False)


def test_a_list_that_was_cut_is_no_answer() -> None:
    line = b"12|rung-abc-mmgcn-1-1|RUNNING|None|turing|2026-11-18T06:00:00|gpu|rung/abc/mmgcn-1/1@f00\n"
    whole = Answers(CommandResult(0, line, b""))
    assert [job.number for job in SlurmQueue(whole, "abc").jobs()] == ["12"]
    cut = (line * (OUTPUT_BYTES // len(line) + 1))[:OUTPUT_BYTES]
    with pytest.raises(QueueAway, match="lab: its queue has more jobs of yours than can be read"):
        SlurmQueue(Answers(CommandResult(0, cut, b"")), "abc").jobs()
