"""Messages about numbers that are not finite: in the loss, in the gradients, in the weights."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.signature import Window, row

_LOSS, _GRAD = FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE

# A healthy run skips one batch with NaN; the next reported loss decides. While a scaler has skipped every step since
# the start, no weight has changed, so there is time to see whether its scale collapses (65536 is below 1 after 17
# halvings, plus 20 reports), which is another fault with other rungs.
BAD_LOSS = Window(consecutive=2, from_start=64)
# A loss of 0, or one that no longer changes, with gradients of NaN: the log filters NaN out.
HIDDEN_NAN = Window(consecutive=2)
FROZEN_LOSS = Window(consecutive=3, from_start=64)
# After ten bad batches in a row people stop a run by hand. A scaler that begins at 2^32 skips twenty and is healthy.
BAD_GRADIENT = Window(consecutive=10, from_start=64)
# Finite losses in a row that prove that a run got past a fault.
PROOF_OF_HEALTH = Window(consecutive=3)

_BAD = r"(?:nan|inf|infinite|infinity|non[- ]?finite|not finite)s?"
_BADS = rf"{_BAD}(?:(?:/| or | and |, ?){_BAD})?"
_BECAME = (
    r"(?:is|are|was|were|be|became|becomes?|turned|turns|went|goes|has become|contains?|has|have|diverged|exploded)"
)
_SEEN = r"(?:detected|found|encountered|appeared|occurred|occurs)"

ROWS = (
    row("gradients: Megatron", _GRAD, "in local grad norm", r"found (?:NaN|Inf)\w* in local grad norm"),
    row("gradients: fairseq", _GRAD, "gradients are nan|gradients are inf", r"gradients are (?:nan|inf)\b"),
    row(
        "gradients: clip",
        _GRAD,
        "for gradients from",
        r"total norm of order .{1,20} for gradients from .{1,60} is non-finite",
    ),
    row(
        "gradients: every step",
        _GRAD,
        "gradients at all|gradients at every|gradients in all|gradients in every|gradients of all|gradients of every"
        "|all gradients are|all gradients were",
        rf"\bgradients (?:at|in|of) (?:all|every) (?:steps?|batch(?:es)?|iterations?) (?:are|is|were|was) "
        rf"(?:invalid|{_BAD})\b|\ball gradients (?:are|were) (?:invalid|{_BAD})\b",
    ),
    row("gradients: TensorFlow", _GRAD, "nan global norm", r"Found Inf or NaN global norm"),
    row(
        "gradients: message",
        _GRAD,
        "nan grad|inf grad|finite grad|infinite grad|nan in grad|inf in grad|in grad|nan values in grad"
        "|gradient is|gradients is|gradient norm is|grad norm is|grad_norm is|grad is|grads are|gradient was"
        "|gradient became|grad_norm became|grad norm became|gradient norm became|gradients became|gradients contain"
        "|gradients: nan|gradient: nan|gradients: inf|gradient contains|gradients have|gradient has|gradients has"
        "|for grad",
        rf"\bgrad(?:ient)?s?\W{{1,3}}{_BAD} {_SEEN}|\bgrad(?:ient)?s?(?:[ _-]norms?)?[`'\"]? {_BECAME} (?:now |to "
        rf"|a |all |either )?{_BAD}\b"
        rf"|\b{_BADS}(?: values?)?,? (?:{_SEEN} )?(?:in |for |of )?(?:the |all )?(?:\w{{1,20}} )?grad(?:ient)?s?\b",
        window=BAD_GRADIENT,
    ),
    row("anomaly mode", _LOSS, "returned nan values", r"returned nan values in its \d+\w* output"),
    row("loss: Megatron", _LOSS, "in local forward loss", r"(?:NaN|Inf)\w* in local forward loss"),
    row(
        "sampling",
        _LOSS,
        "probability tensor contains|probability entry|all elements of std",
        r"probability tensor contains either \W?inf\W{1,4}nan\W? or|\(encountering probability entry (?:<|=|not) "
        r"|\bnormal expects all elements of std >= 0",
    ),
    row(
        "distribution",
        _LOSS,
        "found invalid values|has invalid values",
        r"satisfy the constraint .{1,200}but found invalid values|The parameter \w{1,40} has invalid values",
    ),
    row("overflow hook", _LOSS, "inf/nan during batch", r"Detected inf/nan during batch_number="),
    row("web UI", _LOSS, "nans was produced", r"A tensor with (?:all )?NaNs was produced in"),
    # Exceptions of solvers and of plots about the numbers of a model that are given to them.
    row(
        "solver",
        _LOSS,
        "contain infs or nans|invalid numeric entries|contained non-finite|nan in summary histogram"
        "|inf in summary histogram",
        r"\b\w{1,40}Error: .{0,160}(?:must not contain infs or NaNs|contains invalid numeric entries"
        r"|contained non-finite values)|\b(?:Nan|Inf) in summary histogram for\b",
    ),
    row("Keras", _LOSS, "invalid loss, term", r"Invalid loss, terminating training"),
    row("TensorFlow", _LOSS, "nan loss during", r"NaN loss during training"),
    row("check numerics", _LOSS, "tensor had nan|tensor had inf", r"Tensor had (?:NaN|Inf)"),
    row("JAX", _LOSS, "invalid value (", r"invalid value \((?:nan|inf)\) encountered in"),
    row(
        "Paddle",
        _LOSS,
        "nan or inf|nan` or `inf",
        r"\bthere (?:are|is) \W?nan\W? or \W?inf\W? (?:\(.{1,80}\) )?in\b",
    ),
    row("Lightning: tensors", _LOSS, "nan and/or inf values", r"Detected nan and/or inf values in"),
    row(
        "Lightning: stopping",
        _LOSS,
        "is not finite",
        r"Monitored metric \S{0,60}loss\S{0,40} = \S{0,20}(?:nan|inf)\S{0,20} is not finite",
    ),
    row(
        "loss is nan",
        _LOSS,
        "loss is nan|loss is inf|loss is now|loss is non|loss is not|loss was nan|loss became|loss become|loss turned"
        "|loss went|loss goes|loss diverged|loss exploded|loss has become|loss contains|loss has nan|losses are"
        "|loss returned|losses became",
        rf"\bloss(?:es)? (?:{_BECAME}|returned .{{0,40}} is) (?:now |to |a |all |either )?{_BAD}\b",
    ),
    row(
        "loss ends it",
        _LOSS,
        "nan loss|inf loss|finite loss|infinite loss",
        rf"\b{_BADS} loss(?:es)?\b,? (?:ending|stopping|abort|terminat|exiting)",
    ),
    row(
        "range of NaN",
        _LOSS,
        "range of [nan|range of [-nan|range of [inf|range of [-inf",
        r"range of \[-?(?:nan|inf), -?(?:nan|inf)\] is not finite",
    ),
    row(
        "VecCheckNan",
        _LOSS,
        "found nan in|found inf in",
        r"\bfound (?:nan|inf) in (?:observations|rewards|actions)\b",
    ),
    row("diverged", _LOSS, "diverged with loss", rf"diverged with loss ?=? ?{_BAD}\b"),
    row(
        "Ultralytics",
        _LOSS,
        "nan/inf detected|nan persisted for",
        r"(?:Loss|Fitness|EMA) NaN/Inf detected|NaN persisted for \d",
    ),
    # From here on, messages about one bad batch: each counts like one NaN in the loss.
    row(
        "bad batch",
        _LOSS,
        "nan loss|inf loss|finite loss|infinite loss|nan training loss|nan total loss|loss nan|loss inf"
        "|nan detect|inf detect|nan found|inf found|nan encountered|nan in |inf in |nan values in|finite in "
        "|nan/inf enc|inf encountered|invalid loss|bad loss|abnormal loss|infinite values in|finite values in"
        "|loss: nan|loss=nan|loss = nan|loss(nan|nan/inf in|nan for|loss_nan|encountered nan: |nan in first epoch",
        rf"\b{_BADS} (?:training |train |total |batch )?loss(?:es)?\b"
        rf"(?:.{{0,20}}(?:{_SEEN}|skipp|at |in |for |with |!)|\.? ?$)"
        rf"|\bgave (?:a )?NaN loss\b|\bEncountered NaN: loss\b|\bGot NaN in first epoch\b"
        rf"|\b(?:invalid|bad|abnormal) loss(?: value)?\W{{1,3}}{_BAD}\b"
        rf"|\bloss(?:es)?\b.{{0,15}}\b{_BAD}\b.{{0,20}}(?:{_SEEN}|skipp)"
        rf"|\b{_BADS}(?: values?)? (?:(?:was|were) )?(?:{_SEEN} )?(?:in|for) (?:the )?(?:\w{{1,20}}[ _.])?loss",
        window=BAD_LOSS,
    ),
    row(
        "bad batch, other languages",
        _LOSS,
        "rdida nan|rdida es nan|rdida inf|perte nan|perda nan|verlust nan|verlust ist nan|\u635f\u5931\u4e3a"
        "|\u635f\u5931\u53d8|\u635f\u5931nan|\u635f\u5931\u51fa\u73b0|\u640d\u5931nan"
        "|loss\u4e3a|loss\u53d8|loss \u4e3a|loss \u53d8|loss\u51fa\u73b0|loss \u51fa\u73b0|loss\u662f|loss \u662f",
        r"\b(?:p[\u00e9e]rdida|perte|perda|verlust)(?: es| est| \u00e9| ist)? (?:NaN|inf)\b"
        r"|(?:\u635f\u5931|\u640d\u5931|\bloss) ?(?:\u503c)?(?:\u4e3a|\u53d8\u6210|\u53d8\u4e3a|\u51fa\u73b0|\u662f)?"
        r"(?:\u4e86)? ?(?:NaN|inf)\b",
        window=BAD_LOSS,
    ),
    row(
        "bad numbers",
        _LOSS,
        "nan detected|nan found|nan encountered|nan occurred|nan appeared|encountered nan|detected nan|found nan"
        "|inf found",
        rf"\b{_BADS}(?: values?)? {_SEEN} (?:during|in) (?:the )?(?:training|forward|backward|model output|output)"
        rf"|\b(?:encountered|detected|found) (?:a |some )?{_BADS}(?: values?)? (?:during|in) (?:the )?"
        r"(?:training|forward|backward|model output|output|loss|logits|activations|weights|parameters)\b",
        window=BAD_LOSS,
    ),
    row(
        "bad weights",
        _LOSS,
        "nan detected in|nan found in|nan values in|nan values found|nan in |parameters contain|weights contain"
        "|logits contain"
        "|parameters are nan|weights are nan|weights became|parameters became|logits are nan",
        rf"\b{_BADS}(?: values?)? (?:{_SEEN} )?in (?:the )?(?:model(?:'s)? )?(?:weights|parameters|logits"
        rf"|activations)\b"
        rf"|\b(?:parameters|weights|logits|activations) (?:contain|are|became|have become) (?:all )?{_BAD}\b",
        window=BAD_LOSS,
    ),
    row(
        "NaNs are counted",
        _LOSS,
        " nans after| nans at| nans in| nans.",
        # Not a table of data: "the output file has 12 NaNs in column age".
        r"\b(?:parameter|weight|gradient|layer|tensor|output|logits|activation)s?"
        r"(?:(?!\b(?:file|table|column|row|frame|csv|data\w{0,6})s?\b).){0,60}\b(?:contains?|has|have)"
        r" [1-9]\d{0,14} NaNs\b(?! in (?:the )?(?:column|row|cell|table|file|csv|data))",
        window=BAD_LOSS,
    ),
    row(
        "no finite number",
        _LOSS,
        "a finite number|no longer finite|not finite anymore|not finite any more",
        r"\b(?:loss|cost|objective|energy|criterion|error|nll|elbo)(?: value)? (?:is|was|became) (?:not|no longer)"
        r" (?:a )?finite\b",
        window=BAD_LOSS,
    ),
    # Kaldi: Overall average objective function is nan over 320 frames.
    row(
        "objective is nan",
        _LOSS,
        "objective is nan|objective is -nan|objective is inf|function is nan|function is -nan|function is inf"
        "|cost is nan|cost is inf|criterion is nan|energy is nan|energy is inf|likelihood is nan|likelihood is -inf"
        "|elbo is nan|nll is nan|objective became|cost became|criterion became|energy became|likelihood became"
        "|residual is nan|is -nan|is nan + nan|is nan over|is inf over",
        r"\b(?:objective|objective function|objf|cost|cost function|criterion|energy|(?:log-?)?likelihood|elbo|nll"
        r"|residual)(?: value)?(?: for '?[\w.-]{1,40}'?)?(?: for minibatches [\d-]{1,20})? (?:is|became|turned)"
        r" (?:now |to )?-?(?:nan|inf)\b(?!-)",
        window=BAD_LOSS,
    ),
    # A scalar with a grad_fn that is not finite: the script printed the loss tensor.
    row(
        "printed scalar",
        _LOSS,
        "tensor(nan|tensor(inf|tensor(-inf",
        r"tensor\((?:nan|-?inf),[^()]{0,80}grad_fn=",
        window=BAD_LOSS,
    ),
)
# It is matched with the line of the program that the traceback shows above a bare AssertionError.
ASSERTION = row(
    "assertion of the script",
    _LOSS,
    "assertionerror",
    r": assert\b.{0,160}\b(?:is_?nan|is_?finite|is_?inf)\b.{0,4}\(.{0,60}(?:loss|cost|energy|objective|grad|logit"
    r"|out|pred|activation|weight|param)"
    # Boxes of NaN: no corner is at or beyond another one.
    r"|: assert\b.{0,20}\bboxes\d?\[:, 2:\] >= ",
)
