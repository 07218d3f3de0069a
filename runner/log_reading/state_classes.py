"""Lists the classes whose objects make up the state of reading a log; a kept state can hold no others."""

from __future__ import annotations

from enum import Enum

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.saturation import Saturation
from rung.recovery.detect import (
    alike_lines,
    candidates,
    detector,
    fault_builder,
    last_exception,
    log_tail,
    messages,
    numeric_faults,
    said_in_words,
    scan,
)
from rung.recovery.logs import (
    line_reader,
    lines,
    progress,
    reading,
    step_count,
    tables,
    tracker_links,
    training_bar,
    unwrap,
)
from rung.recovery.monitors import (
    blow_up,
    cusum,
    divergence,
    early_warning,
    grad_finite,
    learning,
    loss_finite,
    loss_scale,
    onset,
    perplexity,
    skipped_steps,
)
from rung.recovery.series import point, thinning
from rung.recovery.unread import nan_rows, numbers, unknown_loss, unknown_rise
from rung.runner.series import write

_CLASSES: tuple[type, ...] = (
    *(Fault, Saturation, messages.Followed, messages.Messages, alike_lines.AlikeLines),
    *(candidates.FaultCandidate, candidates.FaultCandidates, detector.Detector, fault_builder.FaultBuilder),
    *(last_exception.LastException, log_tail.Tail, log_tail.Traceback, numeric_faults.NumericFaults),
    *(said_in_words.SaidInWords, scan.Scan, unknown_loss.UnknownLoss, unknown_rise.UnknownRise),
    *(numbers.UnreadNumbers, nan_rows.NanRows, perplexity.PerplexityMonitor),
    *(line_reader.LineReader, progress.ProgressTracker, step_count.EpochCount, step_count.EpochsBeginAgain),
    *(step_count.EpochStepEstimator, tables.Header, tables.Tables, tracker_links.TrackerLinks),
    *(training_bar.TrainingBar, unwrap.Unwrapper),
    *(blow_up.BlowUp, blow_up.BlowUpMonitor, cusum.CusumLevel, divergence.DivergenceMonitor),
    *(early_warning.EarlyWarningMonitor, grad_finite.GradientMonitor, learning.LossHistory, loss_finite.LossMonitor),
    *(loss_scale.Backoff, loss_scale.LossScaleMonitor, onset.OnsetTracker, skipped_steps.SkippedStepMonitor),
    *(thinning.Thinner, write.SeriesState),
)
_TUPLES: tuple[type, ...] = (lines.Line, reading.Reading, point.Extremes, point.Row)
_ENUMS: tuple[type[Enum], ...] = (FaultKind, candidates.Certainty)

CLASSES = {each.__name__: each for each in _CLASSES}
TUPLES = {each.__name__: each for each in _TUPLES}
ENUMS = {each.__name__: each for each in _ENUMS}
