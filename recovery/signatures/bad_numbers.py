"""Messages about a training that diverged, and of a script's own guard that saw a number that is not finite.

The families are made of what programs print in such places: what the number belongs to, what was seen, what is done
about it. Most of them count only after the first steps, because before them the same words are about data.
"""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.numeric import BAD_GRADIENT, BAD_LOSS
from rung.recovery.signatures.signature import after_steps, row

_LOSS, _GRAD, _DIVERGENCE = FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE, FaultKind.DIVERGENCE

_BAD = r"(?:nan|inf|infinite|infinity|non[- ]?finite|not (?:a )?finite|not[- ]a[- ]number)s?"
_BADS = rf"{_BAD}(?:(?:/| or | and |, ?){_BAD})?"
_SEEN = r"(?:detected|found|encountered|appeared|oc{1,2}ur{0,2}\w{1,3}|ocuurr?ed|happened|observed|spotted|produced)"
_IS = r"(?:is|are|was|were|has|have|had|contains?|became|becomes?|turned|turns|went|goes)"
_DONE = (
    r"(?:exit|abort|stop|terminat|skip|restor|revert|roll(?:ing|ed)? ?back|reload|quit|break|halt|ending|early stop"
    r"|giving up|bail)\w{0,20}"
)
# What a number of a model can belong to. Not what it reads: features, labels, images.
_PART = (
    r"(?:steps?|epochs?|iter\w{0,20}|batch\w{0,20}|round|update|training|forward|backward|layers?|modules?"
    r"|hidden|outputs?"
    r"|the model|model|net\w{0,20}|encoder|decoder|attention|tensors?|activations?|weights?|param\w{0,20}"
    r"|advantages?|actions?"
    r"|returns|q[- ]?values?|logits?|log[- ]?prob\w{0,20}|predictions?)"
)
_SUBJECT = (
    r"(?:parameters?|weights?|layer|outputs?|logits?|activations?|hidden states?|predictions?|policy"
    r"|advantages?|actions?"
    r"|kl|cost|objective|perplexity)"
)
# Not a held-out loss, which changes no weight.
_NAME = (
    r"(?<![A-Za-z])(?<!val_)(?<!valid_)(?<!validation_)(?<!eval_)(?<!test_)(?<!dev_)(?<!best_)(?<!validation )(?<!val )"
    r"(?<!test )(?<!eval )loss(?:es)?(?: values?)?"
)
_NOT_SAID = (
    r"(?! ?(?:checks?|checker|checking|guards?|handl\w{1,20}|detection|detector|protect\w{1,20}|polic\w{1,20}"
    r"|filter\w{0,20}|threshold"
    r"|patience|counts?|tolerance|limit|callback|monitor\w{0,20}|skipping|[:=] ?(?:0|false|true|none|no|on"
    r"|off)|enabled"
    r"|disabled|and infs?|are counted)\b)"
)

_WHAT = r"(?:training|loss|run|model|optimi[sz]ation|optimi[sz]er|objective|learning)"
_NUMBER = r"[-+]?\d{1,40}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?"
_LIMIT = (
    r"(?:the |its |our )?(?:max\w{0,10} |allowed |divergence |safety |loss )?(?:limit|threshold|bound|ceiling|maximum)"
)


ROWS = (
    # First those that need no steps before them.
    row(
        "a loss that is not finite",
        _LOSS,
        "loss is nan|loss isnan|loss has nan|loss is inf|loss is non|loss is not|loss became|loss becomes"
        "|loss went|loss was"
        "|loss contains|loss value is|losses are|loss turned|loss goes",
        rf"{_NAME} {_IS} ?(?:now |all |a )?{_BADS}\b|\bnot all losses are finite\b",
        window=BAD_LOSS,
    ),
    row(
        "an invalid loss",
        _LOSS,
        "invalid loss|abnormal loss|bad loss|anomalous loss|broken loss|loss is abnormal|loss is invalid|loss abnormal",
        r"\b(?:invalid|abnormal|bad|anomalous|broken) (?:training )?loss(?: values?)?"
        r"(?: (?:detected|encountered|found|seen))? (?:at|in|for|on|during) .{0,60}\b(?:skipp?\w{0,20}|drop\w{0,20}"
        r"|ignor\w{0,20}|stop\w{0,20}"
        r"|abort\w{0,20}|nan|-?inf)\b|\bloss (?:is )?(?:abnormal|invalid)\b.{0,20}\b(?:drop|skip|ignor|stop|abort)",
        window=BAD_LOSS,
    ),
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
            _LOSS,
            "input contains nan|input contains inf|prediction contains|predictions contain",
            r"\b\w{1,40}Error: (?:Input contains (?:NaN|infinity)|.{0,60}\bpredictions? contains? (?:NaN|inf))",
        )
    ),
    # A check of the script itself, as its last word.
    after_steps(
        row(
            "check of its own",
            _LOSS,
            "assertionerror: |floatingpointerror: |valueerror: |runtimeerror: |arithmeticerror: ",
            r"\b(?:Assertion|FloatingPoint|Value|Runtime|Arithmetic)Error: (?!.{0,200}\b(?:column|row|json|string"
            r"|dataframe|csv|missing|integer|categor|feature name|input x|input y|impute|quantile|timestamp|expected"
            r"|must be)\w{0,3}\b)"
            r".{0,120}\b(?:NaNs?|non-?finite|not finite|no longer finite|infinite values?|infs?)\b",
        )
    ),
    after_steps(
        row(
            "a loss of NaN",
            _LOSS,
            "nan loss|inf loss|finite loss|infinite loss|nan training loss|nan total loss|nan train loss"
            "|nan batch loss"
            "|finite training loss|finite train loss|finite total loss|finite main|finite scalar|nan main|nan scalar"
            "|infinite scalar",
            rf"\b{_BADS} (?:\w{{1,20}} ){{0,3}}loss(?:es)?\b{_NOT_SAID}",
            window=BAD_LOSS,
        )
    ),
    after_steps(
        row(
            "NaN was seen",
            _LOSS,
            "nan detect|nan found|nan encount|nan occu|nan ocuu|nan appear|nan happen|nan values|nan was |nan were "
            "|nans detect|nans found|nans encount|nans appear|nan/inf|inf/nan|inf detect|inf found"
            "|inf encount|nan or inf"
            "|inf or nan|finite values|nan produced|nan observed|found nan|found a nan|found inf|detected nan"
            "|detected a nan"
            "|encountered nan|encountered a nan|got nan|got a nan|hit nan|occured nan|occurred nan|detected inf"
            "|encountered inf|non-finite|nonfinite|nans were",
            rf"\b{_BADS}(?: values?| numbers?)?(?: (?:was|were|has|have)(?: been)?)? {_SEEN}\b"
            rf"|\b(?:{_SEEN}|got|hit) (?:an? |some |the )?{_BADS}\b(?! loss(?:es)?\b| or |/|,? current scale)",
            window=BAD_LOSS,
        )
    ),
    after_steps(
        row(
            "NaN in a part",
            _LOSS,
            "nan in |nan at |nan during|nan after|nans in |nans at |inf in |nan from|nan for |nan values"
            "|finite values"
            "|nan/inf|inf/nan|nan or inf|inf or nan|finite in ",
            rf"\b{_BADS}(?: values?)? (?:in|at|during|after|for|from) (?:the |some "
            rf"|all )?(?:\w{{1,20}} ){{0,2}}{_PART}\b",
            window=BAD_LOSS,
        )
    ),
    after_steps(
        row(
            "a part is NaN",
            _LOSS,
            "is nan|are nan|has nan|have nan|contains nan|contain nan|became nan|become nan|is inf|are inf"
            "|contains inf"
            "|contain inf|contains non|contain non|has inf|have inf|went nan|turned nan|has non-finite|is non-finite"
            "|are non-finite",
            rf"\b{_SUBJECT}\b[^.;]{{0,40}} {_IS} (?:all |now |some )?{_BADS}\b(?!-)",
            window=BAD_LOSS,
        )
    ),
    after_steps(
        row(
            "NaN ends it",
            _LOSS,
            "nan, stop|nan, abort|nan, exit|nan, skip|nan, term|nan! stop|nan! exit|nan! abort|nan. stop"
            "|nan. abort|nan. exit"
            "|nan; stop|nan; abort|nan; skip|nan — |nan - |to nan|as nan|nan enc|nan loss|became nan",
            rf"(?<![:=] )\b{_BADS}\W{{1,4}}{_DONE}"
            rf"|\b(?:exit|abort|stop|terminat|halt|quit)\w{{0,20}}\b.{{0,30}}(?:because|due to|as|since|:)\W{{0,3}}"
            rf"(?:\w{{1,12}} ){{0,2}}{_BADS}\b(?! ?=)",
            window=BAD_LOSS,
        )
    ),
    # Megatron prints what a repeated step gave.
    row(
        "an unexpected result",
        _LOSS,
        "unexpected result ",
        r"\bunexpected result (?:tensor\()?(?:nan|-?inf)\b",
        window=BAD_LOSS,
    ),
    row(
        "gradients of a part",
        _GRAD,
        "finite grad|nan grad|inf grad|infinite grad|gradient is nan|grad is nan|grad_norm is|nan in grad|inf in grad"
        "|nan/inf grad|inf/nan grad|finite norm",
        rf"\b{_BADS} grad(?:ient)?s?[ _-]norms?\b{_NOT_SAID}",
        window=BAD_GRADIENT,
    ),
    # An exception whose class says it.
    after_steps(
        row(
            "class of an exception",
            _LOSS,
            "nanloss|nanerror|nanexception|nanstop|nonfiniteloss|nonfiniteerror|nonfinitegrad|nanintraining"
            "|nandetected"
            "|nanoccur|lossisnan",
            r"\b(?-i:\w{0,40}(?:N[aA]NS?|NonFinite|Nonfinite)(?:Loss|Grad|Gradient|Stop|Detected|InTraining"
            r"|Occurred)?"
            r"(?:Error|Exception|Warning)\b|NaNLoss occu|LossIsN[aA]N)",
            window=BAD_LOSS,
        )
    ),
    after_steps(
        row(
            "class of a divergence",
            _DIVERGENCE,
            "divergenceerror|divergederror|divergedexception|divergenceexception|explosionerror|instabilityerror"
            "|explodederror|unstableerror",
            r"\b(?-i:(?!KL|JS)\w{0,40}(?:Divergence|Diverged|Explosion|Exploded|Instability|Unstable)"
            r"(?:Error|Exception)\b)",
        )
    ),
    after_steps(
        row(
            "gradients explode",
            _DIVERGENCE,
            "gradient explo|gradients explo|grad explo|exploding grad",
            r"\bgrad(?:ient)?s? (?:has |have )?explo(?:ded|sion)\b(?! (?:check|guard|prevent|detection|threshold))"
            r"(?=.{0,20}(?:detected|[!.]|$|at\b|in\b))",
        )
    ),
    after_steps(
        row(
            "loss too large",
            _DIVERGENCE,
            "loss is too|loss too large|loss too high|loss spike|loss is huge",
            r"\bloss (?:is |was )?(?:too (?:large|high|big)|huge)\b.{0,30}\b(?:stop|abort|exit|terminat|diverg|halt)"
            r"|\bloss spike\b.{0,80}\b(?:stopping|abort|terminat|exiting|halt)",
        )
    ),
    # Decompositions and losses that refuse what only a network whose numbers went bad gives them.
    after_steps(
        row(
            "decomposition",
            _LOSS,
            "linalg.svd|linalg.eigh|linalg.cholesky|linalg.eig:|svd did not conv|eigenvalues did not|did not converge"
            "|symeig_|cholesky_cpu|cholesky_cuda",
            r"\b\w{0,40}Error: (?:linalg\.(?:svd|eigh|eig|cholesky): .{0,200}(?:failed to converge"
            r"|not positive-definite"
            r"|could not be completed)|SVD did not converge|Eigenvalues did not converge"
            r"|(?:symeig|svd|cholesky)_(?:cpu|cuda): )",
        )
    ),
    after_steps(
        row(
            "out of the range of a probability",
            _LOSS,
            "should be between 0 and 1",
            r"\b\w{1,40}Error: all elements of (?:input|target) should be between 0 and 1",
        )
    ),
    after_steps(
        row(
            "other languages",
            _LOSS,
            "检测到|出现|发现|遭遇|遇到|产生|梯度|损失"
            "|lossが|lossは|損失が|nanが|nanを|検出|nan 발생|nan이|nan 감"
            "|손실|loss가|обнаружен|потери"
            "|nan erkannt|nan gefunden|nan aufgetreten|nan detectado|nan encontrado|nan détect|nan rilevato"
            "|nan trovato|detectó nan|detectado nan|detectó un nan|loss stal",
            r"(?:检测到|出现|发现|遇到|产生)(?:了)? ?(?:NaN|inf|无穷)"
            r"(?![^\n]{0,20}(?:列|行|特征|标签|样本|数据))"
            r"|(?:损失|梯度|参数|权重|\bloss)(?:值)?(?:中)?(?:出现|包含"
            r"|存在|变为|变成|为|是)(?:了)? ?(?:NaN|inf)"
            r"|(?:loss|損失|勾配)(?:が|は) ?(?:NaN|inf)|\bNaN(?:が|を)?(?:検出|発生)"
            r"|\bNaN(?:이|가|을|를)? ?(?:발생|감지|검출)|(?:loss|손실)(?:이|가"
            r"|값이)? ?NaN|обнаружен\w{0,20} (?:NaN|inf)"
            r"|потер\w{1,20} (?:стал\w{0,20} |равн\w{0,20} )?(?:NaN|inf)"
            r"|\bNaN (?:erkannt|gefunden|aufgetreten|detectado|encontrado|détecté|rilevato|trovato)\b"
            r"|\b(?:detectó|detectado) (?:un )?NaN\b",
            window=BAD_LOSS,
        )
    ),
)
