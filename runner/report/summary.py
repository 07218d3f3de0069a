"""Says in one line how a job went, so that it can be pasted into a chat. Only what is known is said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rung.jobs.model.state import JobState
from rung.jobs.model.terminal_text import clean
from rung.runner.views.times import duration_text

ENDS = {JobState.SUCCEEDED: "finished", JobState.FAILED: "failed", JobState.CANCELLED: "was cancelled"}
# Shorter runs do not show a pace.
MIN_STEPS, MIN_SECONDS = 200, 30.0
# A difference below this is noise.
MIN_SLOWER = 1.0
LONGEST_REASON = 200

Data = Mapping[str, Any]


def summary_line(data: Data) -> str:
    """Return the line for a history: `mmgcn finished after 2 recoveries (lower_lr): 4 % of steps run again`."""
    state, began = data["job"]["state"], f"{data['job']['name']} {how_it_went(data, with_rungs=True)}"
    said = [text for text in (_run_again(data), _pace(data["attempts"]), _measured(data)) if text]
    if state == JobState.FAILED:
        said.insert(0, _short(data["job"]["reason"]))
    if not said:
        said = [f"{data['summary']['steps_made']} steps in {duration_text(data['summary']['seconds'])}"]
    return clean(f"{began}: {', '.join(said)}")


def how_it_went(data: Data, *, with_rungs: bool = False) -> str:
    """Return what became of a job: `finished after 2 recoveries`, or `finished after 2 recoveries (lower_lr)`."""
    state, found, retries = data["job"]["state"], recoveries(data["attempts"]), _retries(data["attempts"])
    went = ENDS.get(state, f"is {state.lower()}")
    rungs = f" ({', '.join(dict.fromkeys(found))})" if with_rungs else ""
    parts = [f"{len(found)} recover{'y' if len(found) == 1 else 'ies'}{rungs}"] if found else []
    if interruptions := data["summary"]["interruptions"]:
        parts.append(f"{interruptions} interruption{'' if interruptions == 1 else 's'}")
    if retries:
        parts.append(f"{retries} retr{'y' if retries == 1 else 'ies'} by a person")
    said = " and ".join([*filter(None, [", ".join(parts[:-1])]), *parts[-1:]])
    return f"{went} after {said}" if said else went


def summary_facts(data: Data) -> dict[str, Any]:
    """Return the same as data, which `rung report --json` prints."""
    return {
        "id": data["job"]["id"],
        "name": data["job"]["name"],
        "line": summary_line(data),
        "recoveries": recoveries(data["attempts"]),
        "share_run_again": share_again(data),
        **data["summary"],
    }


def recoveries(attempts: Sequence[Data]) -> list[str]:
    """Return what each relaunch after a fault did: its rung, or `same knobs`."""
    return [row["rung"] or "same knobs" for row in own_runs(attempts) if not row["by_person"] and row["after_fault"]]


def _retries(attempts: Sequence[Data]) -> int:
    return sum(row["by_person"] and row["number"] > 1 for row in own_runs(attempts))


def own_runs(attempts: Sequence[Data]) -> list[Data]:
    """Return the job's own runs, without the trials."""
    return [row for row in attempts if not row["trial"] or row["trial"]["goes_on"]]


def share_again(data: Data) -> float | None:
    """Return the share of steps that were run again, trials included; None: nothing is known about steps."""
    made, lost = data["summary"]["steps_made"], data["summary"]["steps_lost"]
    return lost / made if made else None


def percent(share: float) -> str:
    """Return a share as a person says it: `4 %`, `0.4 %`."""
    value = share * 100
    return f"{value:.0f} %" if value >= 2 or value == 0 else f"{value:.1f} %"


def _run_again(data: Data) -> str:
    share = share_again(data)
    return f"{percent(share)} of steps run again" if share else ""


def _pace(attempts: Sequence[Data]) -> str:
    """Return how much slower the last run was than the first, where both ran long enough in the same place."""
    runs = own_runs(attempts)
    if len(runs) < 2 or any(runs[0][name] != runs[-1][name] for name in ("host", "gpus")):
        return ""
    before, after = _seconds_per_step(runs[0]), _seconds_per_step(runs[-1])
    if before is None or after is None:
        return ""
    slower = (after / before - 1) * 100
    if abs(slower) < MIN_SLOWER:
        return ""
    return f"{abs(slower):.1f} % {'slower' if slower > 0 else 'faster'}"


def _seconds_per_step(row: Data) -> float | None:
    if None in (row["progress_at"], row["ended_at"], row["first_step"], row["furthest_step"]):
        return None
    steps, seconds = row["furthest_step"] - row["first_step"], row["ended_at"] - row["progress_at"]
    return seconds / steps if steps >= MIN_STEPS and seconds >= MIN_SECONDS else None


def _measured(data: Data) -> str:
    """Return the metric of success, or the only metric that was measured."""
    runs = own_runs(data["attempts"])
    metrics = runs[-1]["metrics"] if runs else {}
    wanted = data["job"]["success"]
    name = wanted["metric"] if wanted else next(iter(metrics)) if len(metrics) == 1 else None
    value = metrics.get(name)
    return f"{name} {value:.4g}" if isinstance(value, int | float) and math.isfinite(value) else ""


def _short(reason: str) -> str:
    reason = reason.rstrip(".")
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"
