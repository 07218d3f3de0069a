"""Why Rung has no hands in a job, which means that it cannot set knobs from inside, in words for a person."""

from __future__ import annotations

SILENT = "silent"
ADVICE = "pass the knobs by flags or a config file instead"

# The words are those of the records that the code in the job writes; `silent` is the controller's own.
_REASONS = {
    SILENT: (
        "losses were seen in its log, and nothing has come from inside it",
        "start the training with a Python that reads PYTHONPATH and imports torch",
    ),
    "part_failed": ("a part of Rung could not be installed in its Python", ADVICE),
    "not_started": ("Rung's code could not be started in its Python", ADVICE),
    "python_too_old": ("its Python is older than 3.8", f"use a newer Python, or {ADVICE}"),
    "no_update": ("no optimizer of torch steps in it", ADVICE),
    "isolated": ("its Python was started with an option that ignores PYTHONPATH", "remove -I, -E or -S"),
    "environment_cleared": (
        "a launcher has cleared the environment of its Python",
        "let it pass PYTHONPATH and the variables that begin with RUNG_",
    ),
}


def describe_no_hands(hands: str) -> str:
    """Say why there are no hands and what to do, from the reason and the details of the record."""
    word, _, details = hands.partition("; ")
    why, advice = _REASONS.get(word, (word, ADVICE))
    return f"Rung has no hands in this job: {why}{f' ({details})' if details else ''}. What to do: {advice}"
