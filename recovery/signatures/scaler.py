"""Messages about mixed precision: values out of range, errors of the scaler, a loss scale that collapses."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.signature import Role, Signature, Window, row

_K = FaultKind

# When every batch overflows, the scale is halved down to exactly 0; 20 reports below 1 are a collapse. At the end of a
# log two are enough, because one can be a back-off, and so is a single one far below 1.
LOW_SCALE = Window(consecutive=20, at_end=2, floor=1.0, deep=2.0**-7)
# A single one is enough, too, after this many falls without a rise, as from 65536 to below 1.
STRAIGHT_FALL = Window(at_end=8)
# A log whose last word is a back-off to this scale or below, after so many falls without a rise.
LAST_WORD = Window(at_end=5, floor=2.0)
# A scaler that stays at its floor for this many reports in a row.
AT_FLOOR = Window(consecutive=3, at_end=2, floor=1.0)
# More than 5 % of at least 100 and at most the last 200 steps skipped, with at least two ups and two downs.
THRASH = Window(consecutive=2, share=0.05, fewest=100, most=200)
# At the end of a shorter log: more than 15 % of at least 24 steps, with four ups and downs. A scaler with its default
# growth interval of 2000 goes up once in so many steps.
THRASH_AT_END = Window(consecutive=4, share=0.15, fewest=24)

_NUMBER = r"\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,4})?"

ROWS = (
    # torch <= 2.9 prints at::Half, later versions c10::Half; there is a BFloat16 variant, and some logs cut the end.
    # An integer or a complex number is another error, for which the ladder has no rung.
    row(
        "half conversion",
        _K.FP16_OVERFLOW,
        "cannot be converted to type",
        r"value cannot be converted to type (?:(?!u?int|u?long|short|bool)\S+ without overflow(?!: \()"
        r"|(?:at|c10)::(?:Half|BFloat16))",
    ),
    row("unscale FP16", _K.UNSCALE_ERROR, "attempting to unscale", r"Attempting to unscale \S{2,12} grad"),
    row(
        "unscale twice",
        _K.UNSCALE_ERROR,
        "unscale_() has already",
        r"unscale_\(\) has already been called (?:on this optimizer )?since",
    ),
    row("unscale late", _K.UNSCALE_ERROR, "unscale_() is being", r"unscale_\(\) is being called after step\(\)"),
    row(
        "unscale dtype",
        _K.UNSCALE_ERROR,
        "check_and_unscale",
        r"[\"'`]_amp_(?:foreach_)?non_finite_check_and_unscale_\w{0,20}[\"'`]"
        r"|check_and_unscale\w{0,20} not implemented",
    ),
    row("unscale apex", _K.UNSCALE_ERROR, "unscale a grad with", r"Attempting to unscale a grad with type"),
    row("unscale unused", _K.UNSCALE_ERROR, "but _scale is none", r"Attempted \w+_? but _scale is None"),
    row(
        "no inf checks", _K.UNSCALE_ERROR, "no inf checks", r"No inf checks were recorded (?:for this optimizer|prior)"
    ),
    row("step twice", _K.UNSCALE_ERROR, "since the last update", r"step\(\) has already been called since the last"),
    row("closure", _K.UNSCALE_ERROR, "closure use is not", r"Closure use is not currently supported if GradScaler"),
    row(
        "cut off in unscale",
        _K.UNSCALE_ERROR,
        "grad_scaler.py",
        r"\bamp[/\\]{1,2}grad_scaler\.py\W{1,3}line \d+, in _unscale_grads_",
        Role.CUT,
    ),
    row(
        "floor",
        _K.SCALE_COLLAPSE,
        "loss scale already|minimum loss scale|loss scale reached|loss scale has reached|loss scale is at"
        "|loss scale hit|loss scale at min|loss scale stuck",
        r"loss scale (?:is |has )?(?:already |stuck )?(?:at|reached|hit|hitting) (?:the |its )?min"
        r"|minimum loss scale (?:has been |was |is )?reached",
    ),
    row(
        "scale ends it",
        _K.SCALE_COLLAPSE,
        "scale is too small|scale too small|scale is too low|in a row due to overflow",
        r"\b(?:loss|grad(?:ient)?)[ _-]?scale (?:is )?too (?:small|low)\W{1,3}(?:exit|abort|stop|terminat|end)"
        r"|\bskipped \d{1,6} (?:iterations|steps|batches|updates) in a row due to overflow",
    ),
    row(
        "collapse message",
        _K.SCALE_COLLAPSE,
        "scale collapse|scale has collapsed|scale underflow|scale dropped below|scale fell below",
        r"\b(?:loss|grad(?:ient)?)[ _-]?scale(?:r)?(?: scale)?\b.{0,20}\b(?:collapsed?|underflow\w*|(?:dropped"
        r"|fell) below 1\b)",
    ),
)

_TO = rf"(?P<to>{_NUMBER})"
_TRIED = rf"(?P<attempted>{_NUMBER})"
_LOWERED = ("reduced", "decreased", "lowered", "dropped", "halved", "cut")


def _backoff(name: str, anchors: str, pattern: str) -> Signature:
    return row(f"back-off: {name}", _K.SCALE_COLLAPSE, anchors, pattern, Role.BACKOFF, LOW_SCALE)


# A step that a scaler skipped, with the scale that it tried and the next one.
BACKOFFS = (
    _backoff(
        "DeepSpeed",
        "attempted loss scale",
        rf"Attempted loss scale: {_TRIED}(?:, (?:reducing|decreasing) to {_TO})?",
    ),
    _backoff(
        "from and to",
        "|".join(f"scale {word}from" for word in ("", *(f"{verb} " for verb in _LOWERED))),
        rf"\b(?:loss|grad(?:ient)?|amp|new|the|current) scaler? (?:(?:{'|'.join(_LOWERED)}) )?from {_TRIED} to {_TO}",
    ),
    _backoff(
        "to",
        "reducing loss scale|setting loss scale|reducing scale to|decreasing loss scale|lowering loss scale"
        "|lowering scale to|halving loss scale|reducing grad scale|reducing the loss scale|lowering the loss scale|"
        + "|".join(f"scale {verb} to" for verb in _LOWERED),
        rf"(?:(?:reducing|setting|decreasing|lowering|halving) (?:the )?(?:loss |grad )?scale to:?"
        rf"|\b(?:loss|grad(?:ient)?|amp) scaler? (?:{'|'.join(_LOWERED)}) to) {_TO}",
    ),
    # Gradient overflow at step 7, skipping update. Loss scale 16 -> 8
    _backoff(
        "arrow",
        "skipping update|skipping step|skipping the step|skipping optim|step skipped|update skipped|step was skipped"
        "|update was skipped|gradient overflow|grad overflow|overflow detected|overflow at |inf/nan grad|inf grads"
        "|non-finite grad",
        rf"\bscaler?(?: factor)?[ :=(]{{1,4}}{_TRIED} ?(?:->|=>|-->|\u2192) ?{_TO}",
    ),
    _backoff("Paddle", "current scale is", rf"Found inf or nan, current scale is: {_TRIED}, decrease to"),
    _backoff("new", "new scale:|new loss scale", rf"(?:skipp|overflow).{{0,80}}new (?:loss )?scale:? {_TO}"),
)
