"""Decides how long a run may be silent before it counts as stalled, from its own pace.

A sign of life is anything that the controller sees: output in the log, a record from inside, a new checkpoint. The gaps
between them are the pace of a run. A pure function of the gaps; the controller measures them by its steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from rung.jobs.spec.recovery_spec import AUTO

# A run is stalled when it is silent for so many times its longest gap. An evaluation that came once has raised the gap,
# and one that comes later may take several times as long.
PACE_FACTOR = 10
# So many gaps show a pace; before that nothing is known about the run.
PACE_GAPS = 10
# However fast the run is: a first evaluation, a save to a slow disk or a compilation may take this long. It is also the
# longest default timeout of torch's process groups, whose message says more than a silence.
SHORTEST_LIMIT = 1800.0


@dataclass(frozen=True)
class Pace:
    """The gaps between the signs of life of one run: how many there were, and the longest in seconds."""

    gaps: int = 0
    longest: float = 0.0

    def after(self, gap: float) -> Pace:
        return Pace(self.gaps + 1, max(self.longest, gap))

    @property
    def is_shown(self) -> bool:
        return self.gaps >= PACE_GAPS

    @classmethod
    def stored(cls, longest: float | None) -> Pace:
        """Return the pace that another controller has seen; None: it has seen none."""
        return cls() if longest is None else cls(PACE_GAPS, longest)


def allowed_silence(setting: float | str | None, pace: Pace, stalls_before: int) -> float | None:
    """Return the seconds without a sign of life that make a run stalled; None: there is no limit.

    `setting` is recovery.stalled. With `auto` the limit doubles with each stall that the job had before: it may have
    been work without any output, such as a very long evaluation, and then the next attempt gets through it.
    """
    if setting is None:
        return None
    if not isinstance(setting, str):
        return setting
    if not pace.is_shown:
        return None
    return float(max(SHORTEST_LIMIT, PACE_FACTOR * pace.longest) * 2**stalls_before)


def stall_text(silent: float, setting: float | str | None, pace: Pace) -> str:
    """Return what shows that a run is stalled, as one line."""
    if setting == AUTO:
        why = f"its longest gap before was {_time(pace.longest)}"
    else:
        why = f"longer than recovery.stalled ({_time(float(setting or 0))})"
    return f"no sign of life for {_time(silent)}, {why}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
