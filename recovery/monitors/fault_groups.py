"""Names the groups of fault kinds that several parts of recovery treat alike."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind

_K = FaultKind

# One value is not finite: the fault begins at that step, unless the numbers before it had already grown.
BAD_VALUE = frozenset({_K.NAN_LOSS, _K.GRAD_NONFINITE})
# Loss or gradients have gone wrong. A NaN in the backward pass is a NaN in the loss one step later.
BAD_NUMBERS = BAD_VALUE | {_K.DIVERGENCE, _K.NOT_LEARNING}
# The loss scale has gone wrong. A finite loss does not disprove it: the loss is finite while the scale collapses.
BAD_SCALE = frozenset({_K.SCALE_COLLAPSE, _K.SCALE_THRASH})
# Numbers leave the range of FP16.
OUT_OF_RANGE = BAD_SCALE | {_K.FP16_OVERFLOW}
# The log has numbers before these faults, so the detector finds when they went wrong and which checkpoint is good.
HAS_ONSET = OUT_OF_RANGE | BAD_NUMBERS - {_K.NOT_LEARNING}
# These faults make a run fail even if it exits with 0.
FAILS_CLEAN_EXIT = HAS_ONSET - {_K.FP16_OVERFLOW}
