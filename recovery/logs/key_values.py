"""Finds numbers with their names in free text: `loss=2.5`, `lr: 1e-3`, `| gnorm 1.2 |`, `Loss 0.5`.

Every pattern takes time linear in the length of the line: its repetitions are bounded, and possessive where they repeat
a character. Python before 3.11.5 misses matches where they repeat a group. metric_names.py decides what a name stands
for.
"""

from __future__ import annotations

import re

Pairs = list[tuple[str, str]]

_NUMBER = r"[-+]?(?:\d{1,40}+(?:\.\d{0,40}+)?(?:[eE][-+]?\d{1,5}+)?|\.\d{1,40}+|[nN][aA][nN]|[iI][nN][fF](?:inity)?)"
# What must not follow a number: a unit (`nanms`), the rest of a version (2.18.3), time (0:12:30) or date, a bar (12%|).
# Lightning's bar pads a number to a fixed width and so prints `nan.0` and `inf.0`; PaddleOCR prints `nanxxx`.
_ENDS = r"(?:(?<=[nNfF])(?:\.0{1,8}+|x{1,8}+))?(?!\w|\.\d|:\d|-\w|%\|)"
# A tensor or list in place of a plain number, or a number in quotes as transformers prints it.
_WRAPPED = r"(?:tensor\(|array\(|np\.float\d\d\(|\[|\()?[\"']?+"
_NAME = r"[A-Za-z_][\w./@-]{0,60}+"
_EQUALS = rf"[\"'\])]{{0,2}}+ {{0,20}}+[:=\uff1a] {{0,20}}+{_WRAPPED}({_NUMBER}){_ENDS}"
# Not after a colon, unless an equals sign follows: loguru prints module:function:line, and the function can be named
# train_step. Not after two dashes: that is a flag of a command line.
_NO_FUNCTION = r"(?:(?<!:)|(?=[lL]oss {0,2}=))"
_PAIR = re.compile(rf"\b{_NO_FUNCTION}(?<! --)({_NAME}){_EQUALS}", re.ASCII)
# The first words of two-word names. This search takes three times as long, so it runs only where a second word is in
# the line.
_FIRST_WORD = (
    r"(?:(?:[lL]earning|[gG]rad(?:ient)?|[lL]oss(?= scale)|[lL][mM]|[tT]rain(?:ing)?|[vV]al(?:id|idation)?"
    r"|[eE]val(?:uation)?|[tT]est|[tT]otal|[aA]verage|[aA]vg|[mM]ean|skipped|nan) )?"
)
_TWO_WORDS = re.compile(rf"\b{_NO_FUNCTION}(?<! --)({_FIRST_WORD}{_NAME}){_EQUALS}", re.ASCII)
_SECOND_WORDS = (" loss", " rate", " norm", " scale", " iterations")
# A name with a word after `loss`: `Gen Loss Total : 3.1`. Only words that say nothing but whose or which loss it is.
_WORD_AFTER = re.compile(
    r"\b((?:(?!loss )[A-Z]{1,20}+ )?loss (?:total|sum|avg|average|mean|value|[dg]))" + _EQUALS,
    re.ASCII | re.IGNORECASE,
)
_LOSS_AND_WORD = ("loss total", "loss sum", "loss av", "loss mean", "loss value", "loss d", "loss g")
# A loss is often printed with only blanks, or a table's bar, between name and number.
_SPACED_LOSS = re.compile(
    rf"([lL](?:oss|OSS)(?:[_/.]\w{{1,30}}+)?) {{0,30}}+[|\u2502]?+ {{0,30}}+(?<!\w){_WRAPPED}({_NUMBER}){_ENDS}",
    re.ASCII,
)
# On a line with a loss, other numbers can be printed the same way: `LR 2.8e-03`, `gnorm 1.5`, `Tok/s 40562`.
_SPACED = re.compile(
    rf"(?<![\w/.-])([lL][rR]|[gG]norm|[gG]rad[_ ][nN]orm|norm|(?:[lL]oss[_ ])?[sS]cale|[tT]ok(?:ens)?/s(?:ec)?)"
    rf" {{1,8}}+({_NUMBER}){_ENDS}",
    re.ASCII,
)
_BEFORE_LOSS = re.compile(r"(?:[A-Za-z]{1,20} |[\w./-]{1,40})\Z", re.ASCII)
# fairseq: | loss 6.6 | num_updates 1632 | lr 0.0015 |
_BETWEEN_BARS = re.compile(rf"\| ([A-Za-z_]\w{{0,60}}+) ({_NUMBER})(?= \||$)", re.ASCII)
# Ultralytics: epoch, memory, then the terms of the loss. Their names are only in a header line above.
_LOSS_COLUMNS = re.compile(
    rf" {{0,20}}+\d{{1,6}}+/\d{{1,6}}+ +\d[\d.]*+[GM]((?: +{_NUMBER}){{3,5}}) +\d+ +\d+\b", re.ASCII
)
# fastai without a notebook: [epoch, train_loss, valid_loss, ..., '00:01']
_FASTAI = re.compile(rf"\[(\d{{1,6}}+), ({_NUMBER}), ({_NUMBER}|None),(?: [^\]]{{1,200}},)? '\d\d:\d\d'\]$", re.ASCII)
# fastprogress, fastai's bar: 22.10% [210/950 00:12<00:41 0.3712]. The last number is the smoothed training loss.
_FASTPROGRESS = re.compile(
    rf"(?<![\d.])\d{{1,3}}+\.\d\d% \[\d{{1,12}}+/\d{{1,12}}+ [\d:]{{4,12}}+<[\d:]{{4,12}}+ ({_NUMBER})\]", re.ASCII
)
# The tutorials on sequences, where the loss has no name: 0m 8s (- 1m 20s) (5000 6%) 2.8521; 5000 5% (0m 8s) 2.6379 Vu
_TIME_SINCE = r"\(?(?:\d{1,4}+h )?\d{1,5}+m \d{1,2}+s(?: \(- (?:\d{1,4}+h )?\d{1,5}+m \d{1,2}+s\))?\)?"
_UNNAMED_LOSS = re.compile(
    rf"(?<!\S)(?:{_TIME_SINCE} \((\d{{1,12}}+) \d{{1,3}}+%\)|(\d{{1,12}}+) \d{{1,3}}+% {_TIME_SINCE}) ({_NUMBER})"
    r"(?= |$)",
    re.ASCII,
)
# Prose between name and number: "Minibatch loss at step 100: 2.3", "loss (avg): 0.7", "loss at epoch 3 is nan".
_PROSE_LOSS = re.compile(
    rf"(?<![\w-])((?:[A-Za-z]{{1,20}}+ )?[lL]oss)"
    r" (?:(?:at|after|for|in|of) (?:[a-zA-Z]{2,12}+ )?#?\d{1,9}+|\((train|val|test|avg|mean|total)[\w /]{0,16}\))"
    rf" ?(?:is|was|[:=]) ?({_NUMBER}){_ENDS}",
    re.ASCII,
)
# A caption and the sides: "Loss(time/batch) - Epoch 1: train = 0.5(3 s) | dev = 0.6(1 s)", "losses: train 1.2 val 1.4".
_CAPTION = re.compile(r"\bloss(?:es)?\b", re.IGNORECASE)
_SIDE = re.compile(
    rf"\b(train(?:ing)?|total|dev|val(?:id|idation)?|test|eval) {{0,3}}[:=|]?+ {{0,3}}({_NUMBER}){_ENDS}",
    re.ASCII | re.I,
)
_OTHER_CAPTION = re.compile(r"acc|score|iou|auc|f\d|bleu|prec|recall|err|wer|cer|ppl|psnr|lr\b|rate", re.IGNORECASE)
MAX_CAPTION = 240
# darknet: "12: 431.25, 428.50 avg loss, 0.000001 rate, 3.1 seconds, 768 images".
# The number in front may be taken for the prefix of a rank.
_DARKNET = re.compile(rf"(?<!\S)(?:(\d{{1,9}}+): )?({_NUMBER}), {_NUMBER} avg(?: loss)?, {_NUMBER} rate, ", re.ASCII)
# How the C library of Windows prints what is not finite.
_WINDOWS = re.compile(r"\b\d\.#(?:(IND|QNAN|SNAN)|INF)\d{0,8}")
# A scale that grew: "loss scale increased to 16", "Increasing loss scale from 8.0 to 16.0".
_GROWN = re.compile(
    r"\b(?:loss|grad(?:ient)?|amp|increasing|raising|doubling)[ _]+(?:loss |grad )?scaler? "
    rf"(?:(?:increased|raised|doubled|grown|grew) )?(?:from {_NUMBER} )?to ({_NUMBER}){_ENDS}",
    re.ASCII | re.IGNORECASE,
)
_GROWN_WORDS = ("increas", "rais", "doubl", "grown", "grew")
# What people call a loss in other languages, before its number.
_ABROAD = re.compile(
    r"(?:损失(?:值|函数)?|損失|손실(?:값)?|Потер[ия]|потер[ия]"
    r"|[Pp]érdida|[Kk]ay\u0131p)(?: {0,3}[:=\uff1a为是] {0,3}| )(?=[-+]?\d{1,40}\.|nan\b|NaN\b)"
)
# A graph of recommendations: train==[0.31=0.30 + 0.01]; LightGCN: loss0.693-|
_OF_GRAPHS = re.compile(rf"\btrain==\[({_NUMBER})=|\bloss({_NUMBER})(?=-\|)")
# Tacotron 2: Train loss 100 0.512 Grad Norm 1.5
_WITH_STEP = re.compile(rf"\b[Tt]rain loss (\d{{1,9}}) ({_NUMBER}) [Gg]rad")
# A number that is wanted and not measured: "target val_loss: 0.5", "stop if val loss = 0.3".
_WISH = re.compile(
    r"(?<![\w-])(?:target|goal|threshold|required|desired|wanted|until|unless|if|when)"
    rf"(?: (?:for|of|is|the|metric))?[ :=]{{1,3}}+{_FIRST_WORD}{_NAME}[\"']?+[ :=]{{1,4}}+{_NUMBER}",
    re.ASCII | re.IGNORECASE,
)
_WISH_WORDS = ("target", "goal", "threshold", "required", "desired", "wanted", "until", "unless", "if ", "when ")


# 1,234.5: a comma between thousands, after a name. Without decimals it may be a list.
_COMMA = re.compile(r",\d\d\d[,.]", re.ASCII)
_THOUSANDS = re.compile(r"(?<=[\s=:|(])([-+]?\d{1,3}(?:,\d{3}){1,12}\.\d)", re.ASCII)


def without_commas(text: str) -> str:
    """Return a line without the commas between the thousands of a number."""
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text) if _COMMA.search(text) else text


def without_wishes(text: str, lower: str) -> str:
    """Return a line with its targets and conditions replaced by blanks; `lower` is the text in lower case."""
    if not any(word in lower for word in _WISH_WORDS):
        return text
    return _WISH.sub(lambda wish: " " * len(wish[0]), text)


def with_loss_in_english(text: str) -> str:
    """Return a line with the word for a loss of other languages as others print it, where a number follows."""
    return text if text.isascii() else _ABROAD.sub("loss: ", text)


def find_pairs(text: str, lower: str) -> Pairs:
    """Return numbers after a colon or an equals sign, or between bars; `lower` is the text in lower case."""
    found: Pairs = []
    if ":" in text or "=" in text or "\uff1a" in text:
        found = (_TWO_WORDS if _has_second_word(lower) else _PAIR).findall(text)
        if "loss " in lower and any(words in lower for words in _LOSS_AND_WORD):
            found += _WORD_AFTER.findall(text)
    if "scale" in lower and any(word in lower for word in _GROWN_WORDS):
        found += [("loss_scale", raw) for raw in _GROWN.findall(text)]
    if " | " in text:
        found += _BETWEEN_BARS.findall(text)
    return found


def find_spaced_losses(text: str) -> Pairs:
    """Return losses with only blanks between name and number, with prose, or below a caption."""
    if "rain loss " in text and (row := _WITH_STEP.search(text)):
        return [("iteration", row[1]), ("train_loss", row[2])]
    if "-|" in text and (row := _OF_GRAPHS.search(text)):
        return [("train_loss", row[1] or row[2])]
    found = [(_whole_name(text, match), match[2]) for match in _SPACED_LOSS.finditer(text)]
    if found:
        return found
    if " avg" in text and (row := _DARKNET.search(text)):
        return _of_darknet(row)
    if match := _PROSE_LOSS.search(text):
        return [(f"{match[1]} {match[2] or ''}".rstrip(" "), match[3])]
    return _find_sides(text)


def _find_sides(text: str) -> Pairs:
    """Return the losses of training and held-out data below a caption that says that they are losses."""
    caption = _CAPTION.search(text)
    if caption is None:
        return []
    rest = text[caption.end() : caption.end() + MAX_CAPTION]
    first = _SIDE.search(rest)
    if first is None or _OTHER_CAPTION.search(rest, 0, first.start()):
        return []
    return [(f"{name}_loss", raw) for name, raw in _SIDE.findall(rest)]


def _of_darknet(row: re.Match[str]) -> Pairs:
    return [*([("iteration", row[1])] if row[1] else []), ("loss", row[2])]


def with_plain_nan(text: str) -> str:
    """Return a line with the NaN and Inf of Windows as others print them."""
    return _WINDOWS.sub(lambda match: "nan" if match[1] else "inf", text) if ".#" in text else text


def find_spaced(text: str) -> Pairs:
    """Return the other numbers of a line with a loss that have only blanks between name and number."""
    return _SPACED.findall(text)


def find_columns(text: str) -> Pairs:
    """Return the numbers of table rows that are recognised without their header."""
    if "/" in text[:16] and (row := _LOSS_COLUMNS.match(text)):
        return [(f"loss_{index}", raw) for index, raw in enumerate(row[1].split()[:3], 1)]
    if " avg, " in text and (row := _DARKNET.search(text)):
        return _of_darknet(row)
    if "% [" in text and (row := _FASTPROGRESS.search(text)):
        return [("loss", row[1])]
    if "==[" in text and (row := _OF_GRAPHS.search(text)):
        return [("train_loss", row[1] or row[2])]
    if "%" in text and "m " in text and (row := _UNNAMED_LOSS.search(text)):
        return [("step", row[1] or row[2]), ("loss", row[3])]
    if text.startswith("[") and (row := _FASTAI.match(text)):
        names = ("epoch", "train_loss", "valid_loss")
        return [(name, raw) for name, raw in zip(names, row.groups(), strict=True) if raw != "None"]
    return []


def _has_second_word(lower: str) -> bool:
    for word in _SECOND_WORDS:
        at = lower.find(word)
        if at > 0 and lower[at - 1].isalpha():
            return True
    return False


def _whole_name(text: str, match: re.Match[str]) -> str:
    """Return the full name of a loss, with the text before the word `loss`: train_loss, val loss."""
    before = _BEFORE_LOSS.search(text[max(0, match.start() - 48) : match.start()])
    return (before[0] if before else "") + match[1]
