"""Patterns of lines that mention a fault that has not happened: advice, a check, a harmless retry."""

from __future__ import annotations

from rung.recovery.signatures.signature import Role, guard

_A = Role.ADVICE

# BEFORE is matched against the text before the message, WHOLE against the whole line.
BEFORE = (
    guard("tip", _A, r"\b(?:tip|hint|faq|troubleshooting|example)s?: .{0,60}$"),
    guard("for instance", _A, r"\b(?:something like|such as|for example|e\.g\.|errors? (?:of|like))\W{0,4}$"),
    guard("none of it", _A, r"\b(?:skipped|found|had|detected|ignored|dropped) 0 .{0,40}$"),
    guard(
        "advice",
        _A,
        r"\b(?:avoid(?:s|ing)?|prevents?|preventing|in case of|if you (?:get|see|hit|run into|encounter|face)"
        r"|instead of"
        r"|recover(?:ed|ing)? from|handles?|handling|guard against|protects? against|likely to|risk of"
        r"|due to possible"
        r"|(?:may|might|can|could|will|would) (?:still )?(?:cause|lead to|result in|run|trigger|get|be|become|give"
        r"|produce))"
        r"\b[^.:;]{0,60}$",
    ),
    guard(
        "negation", _A, r"\b(?:no|not|never|without|isn't|wasn't|aren't|(?:found|detected|had) 0)(?: \w{1,12}){0,2} $"
    ),
    guard(
        "condition",
        _A,
        r"\b(?:if|unless|whether|check(?:s|ing|ed)? (?:for|that|if|the)|test(?:s|ing)? for)(?: [^\s:]{1,20}){0,3} $",
    ),
    guard(
        "setting",
        _A,
        r"\b(?:skip|ignore|allow|filter|detect|catch|(?:stop|raise|exit|abort) (?:on|if|at))[ _](?:on |if )?$",
    ),
)
WHOLE = (
    guard("question", _A, r"(?:out of memory|no space left on device|is nan|cuda error)\W?\?"),
    guard("retry is fine", _A, r"caller indicates that this is not a failure|\bPlan failed with an? \w+"),
    guard(
        "a probe", _A, r"failed call to cuInit: \S*NO_DEVICE|: I (?:tensorflow|external)/\S{1,120} failed to allocate"
    ),
    guard(
        "a count of none",
        _A,
        r"\b(?:nan|inf|non-?finite)\b[\w /-]{0,40}"
        r"(?:skipped|counts?|total|found|detected|seen|losses|grads|gradients|steps|batches|values)"
        r"(?: values)? {0,2}[=:?] {0,2}(?:0(?![.\w])|(?:false|no|none)\b)",
    ),
    guard("a trial of a search, a branch of git", _A, r"\b(?:trials?|branch)\b.{0,80}\bdiverged"),
    guard(
        "a switch",
        _A,
        r"\bnan_to_num\b|\b(?:nans?|infs?|non-?finite)\b.{0,40}\b(?:enabled|disabled|turned (?:on|off))\b"
        r"|\b(?:enabled|disabled|turned (?:on|off))\b.{0,20}\b(?:nans?|infs?|non-?finite)\b",
    ),
    guard(
        "data that is cleaned, or a score without a value",
        _A,
        r"\A(?!.{0,600}(?:loss|grad))(?=.{0,300}\b(?:nans?|infs?|infinite"
        r"|non-?finite)\b).{0,300}\b(?:columns?|rows?|csv"
        r"|dataframe|cells?|missing values?|imput\w{1,6}|features?|labels?|data ?(?:set|frame|loader"
        r"|points?)?s?|files?|tables?"
        r"|images?|pixels?|masks?|poses?|keypoints?|audios?|records?|entries|metrics?|scores?|auc|iou|f1"
        r"|accurac\w{1,3}"
        r"|precision|recall|class(?:es)?|correlation|evaluation|validation|plot|figure|latents|input tensor|timestamps?"
        r"|samples?|input features)\b(?!.{0,80}\btraining has diverged)",
    ),
    guard("caught", _A, r"^\W{0,4}Warning: caught exception "),
    guard("documentation", _A, r"^\s*(?:usage:|--\w[\w-]*[ =]|options:)"),
)
ROWS = (*BEFORE, *WHOLE)
