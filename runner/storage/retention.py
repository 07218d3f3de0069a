"""Decides which checkpoints of an ended job stay when it is pruned. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from rung.jobs.job import Attempt
from rung.recovery.decide.checkpoint_choice import SOUND, UNVERIFIED, Checkpoint, resume_candidates

# Not known to be bad.
USABLE = SOUND | {None, UNVERIFIED}


@dataclass(frozen=True)
class Retention:
    """How many of the newest checkpoints stay, and which others, whatever their age."""

    keep: int
    # The job has reached its end: its last checkpoint is the result.
    succeeded: bool = False
    # Checkpoints that jobs which have not ended began with.
    sources: frozenset[str] = frozenset()


def kept_names(found: Sequence[Checkpoint], attempts: Sequence[Attempt], rule: Retention) -> Set[str]:
    """Return the names of the checkpoints that stay, with all their copies.

    Those that are known to be bad do not count. A job that can be retried goes on from the newest healthy one, so that
    stays too, unless nothing is to be kept.
    """
    newest_first = resume_candidates(found, attempts, None)
    usable = list(dict.fromkeys(each.name for each in newest_first if each.verdict in USABLE))
    healthy = [each.name for each in newest_first if each.verdict in SOUND]
    kept = {*usable[: rule.keep], *rule.sources}
    if rule.keep:
        kept |= set(healthy[:1])
    if rule.succeeded:
        newest = sorted(found, key=lambda each: (each.step, each.written_at), reverse=True)
        kept |= {*[each.name for each in newest][:1], *usable[:1]}
    return kept
