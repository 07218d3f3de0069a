"""Messages about a training that diverged, and exceptions of other programs about numbers that are not finite."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.signature import after_steps, row

_DIVERGENCE, _NAN = FaultKind.DIVERGENCE, FaultKind.NAN_LOSS

_WHAT = r"(?:training|loss|run|model|optimi[sz]ation|optimi[sz]er|objective|learning)"
_NUMBER = r"[-+]?\d{1,40}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?"
_LIMIT = (
    r"(?:the |its |our )?(?:max\w{0,10} |allowed |divergence |safety |loss )?(?:limit|threshold|bound|ceiling|maximum)"
)

ROWS = (
    row(
        "run diverged",
        _DIVERGENCE,
        "training diverged|training has diverged|loss diverged|loss has diverged|run diverged|run has diverged"
        "|model diverged|model has diverged|optimization diverged|optimization has diverged|optimizer diverged"
        "|objective diverged|as diverged|divergence detected|loss exploded|loss has exploded"
        "|loss blew up|loss is exploding|loss explosion|training is diverging|loss is diverging|training blew up"
        "|training exploded|training collapsed with",
        rf"\b{_WHAT} (?:has |is |was |(?:appears|seems) to have )?(?:diverged|diverging|exploded|exploding|blew up)\b"
        rf"(?! ?(?:[=?]|: ?(?:false|true|no|yes|0)\b))|\b{_WHAT} .{{0,20}}marked as diverged\b"
        r"|(?<!KL )(?<!JS )\bdivergence detected\b(?=$|[.!,:;(]| (?:at|in|after|during|by)\b)|\bloss explosion\b",
    ),
    row(
        "loss above its limit",
        _DIVERGENCE,
        "above the limit|above the thres|above the max|exceeds the|exceeded the|exceeds thres|exceeded thres"
        "|exceeds limit|exceeded limit|exceeds max|above limit|above thres|larger than the|greater than the",
        rf"\b(?:loss|objective|cost|nll)\b[^.;]{{0,20}}\b{_NUMBER}\)? (?:is |was |has )?(?:now |far )?"
        rf"(?:above|exceeds|exceeded|larger than|greater than) {_LIMIT}\b.{{0,40}}"
        r"\b(?:stop|abort|terminat|exit|diverg|ending|giving up|bail|halt)",
    ),
    # The perplexity is exp(loss): a loss above 709 has none.
    after_steps(
        row(
            "exponent of the loss",
            _DIVERGENCE,
            "overflowerror: math range|overflowerror: (34",
            r"\bOverflowError: (?:math range error|\(34, )",
        )
    ),
    # scikit-learn's scores of what a model predicts; about its inputs it says `Input X contains NaN`.
    after_steps(
        row(
            "score of NaN",
            _NAN,
            "input contains nan|input contains inf|prediction contains|predictions contain",
            r"\b\w{1,40}Error: (?:Input contains (?:NaN|infinity)|.{0,60}\bpredictions? contains? (?:NaN|inf))",
        )
    ),
    # A check of the script itself, as its last word.
    after_steps(
        row(
            "check of its own",
            _NAN,
            "assertionerror: |floatingpointerror: |valueerror: |runtimeerror: |arithmeticerror: ",
            r"\b(?:Assertion|FloatingPoint|Value|Runtime|Arithmetic)Error: (?!.{0,200}\b(?:column|row|json|string"
            r"|dataframe|csv|missing|integer|categor|feature name|input x|input y|impute|quantile|timestamp|expected"
            r"|must be)\w{0,3}\b)"
            r".{0,120}\b(?:NaNs?|non-?finite|not finite|no longer finite|infinite values?|infs?)\b",
        )
    ),
)
