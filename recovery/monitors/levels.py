"""Names how high a loss must stand to count as blown up, as multiples of the run's first loss.

Each question has its own threshold. The less other evidence there is, the higher it must be: where a fault is known
already a low one only costs an older checkpoint, while an alarm in a run without any fault costs the run.
Rises above a level that was learned are not here: those are measured in sigmas (onset.py, cusum.py).
"""

from __future__ import annotations

import math

# A fault is known, in the first steps: from which of them on was the loss out of range?
EARLY_ONSET = 2.0
# A rung was applied and the run goes on: is it worse than untrained, even if its loss falls?
WRECKED = 2.0
# A fault is known: did the loss blow up before it, as with too high an lr?
BEFORE_FAULT = 5.0
# No fault is known: did the first steps blow up, so that the run may never learn (see BlowUp.is_spent)?
EARLY_BLOW_UP = 10.0
# No fault is known and the log ends: has the run unlearned more than it knew?
AT_END = 20.0
# No fault is known and the run goes on: no healthy loss stands at ten thousand times what the untrained model had.
RUINED = 1e4
# No lr takes a loss this far from one reading to the next; a bad batch does.
JUMP = 1000.0
# A first loss below this may be noise around zero, as of a policy or a GAN.
SMALL = 0.1
# An lr that wavers less than this is not being raised.
LR_RAISED = 1.1


def blew_up(first: float | None, last: float | None) -> bool:
    """Tell whether the last loss before a fault, still finite, stands far above the run's first."""
    return first is not None and last is not None and BEFORE_FAULT * max(abs(first), SMALL) < last < math.inf
