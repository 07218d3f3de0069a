"""Tests that no text makes the doctor raise or stall, and that reading a script changes nothing in it."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.analysis.source import MAX_BYTES, MAX_DEPTH, Unreadable
from rung.recovery.doctor.examine import examine
from rung.recovery.doctor.fp16_reach import says_fp16

WORDS = st.sampled_from(
    [
        *("import torch\n", "from torch import nn\n", "torch.log(", "torch.sigmoid(", "x", "y", "p", "mask"),
        *("self.x", ")", "(", "[", "]", ",", " + ", " - ", " / ", " * ", " ** ", "1e-8", "-1e9", "0.5", ".sqrt()"),
        *(".exp()", ".masked_fill(mask, -1e9)", ".clamp(min=", ".sum()", ".half()", ".backward()", "\n", "\n    "),
        *(":", "def f(x, eps=1e-8):\n    ", "class A(nn.Module):\n    ", "for x in y:\n    ", "if x:\n    "),
        *("else:\n    ", "return ", "x = ", "x += ", "x, *y = ", "scaler.unscale_(x)", "scaler.step(x)"),
        *("lambda x: ", "with torch.no_grad():\n    ", "# rung: ignore[a]", "'", "é", "\u0000", "\u001b[2J"),
        *("10**10**10", "1e400", "-inf", "x[0]", ".load_state_dict(s)", "torch.save(x, p)", "nn.ReLU()"),
        *("x if x else y", "nan", "await ", "async ", ":=", "f'{x}'", "~", "@", "\\", "{", "}", "**"),
        *("0xfffffffff", "global x\n", "del x\n"),
    ]
)
EXPRESSIONS = st.recursive(
    st.sampled_from(
        ["x", "p", "mask", "1e-8", "0", "-1e9", "1e308", "self.x", "x.shape[0]", "float('nan')", "10**400"]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/%@"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} ** {t[1]})"),
        st.tuples(st.sampled_from(["log", "exp", "sqrt", "sigmoid", "softmax", "abs", "norm", "relu"]), inner).map(
            lambda t: f"torch.{t[0]}({t[1]})"
        ),
        st.tuples(inner, st.sampled_from(["log()", "sum(1)", "clamp(min=0)", "clamp(1, None)", "pow(2)", "max()"])).map(
            lambda t: f"({t[0]}).{t[1]}"
        ),
        inner.map(lambda text: f"(x := {text})"),
        inner.map(lambda text: f"({text} if {text} else -{text})"),
    ),
    max_leaves=12,
)


def read(raw: bytes) -> None:
    try:
        script = Script(raw)
    except Unreadable as problem:
        assert "\n" not in str(problem)
        assert str(problem).isprintable()
        return
    before = ast.dump(script.tree)
    examined = examine(script)
    for findings in (examined.in_fp16, examined.elsewhere):
        for finding in findings:
            assert 1 <= finding.line <= len(script.lines)
            assert finding.what.isprintable()
    says_fp16(script)
    assert ast.dump(script.tree) == before


@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace"))))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_examined_or_refused_in_one_line(raw: bytes) -> None:
    read(raw)


@given(st.lists(WORDS, max_size=30).map("".join))
@settings(max_examples=250, deadline=None)
def test_words_of_training_scripts_in_any_order_raise_nothing(text: str) -> None:
    read(("import torch\n" + text).encode("utf-8", "replace"))


@given(st.lists(EXPRESSIONS, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_arithmetic_is_examined_without_an_exception(expressions: list[str]) -> None:
    lines = "".join(f"    x = {text}\n" for text in expressions)
    read(f"import torch\nclass L(torch.nn.Module):\n  def forward(self, x, p, mask):\n{lines}    return x\n".encode())


@pytest.mark.parametrize(
    "source",
    [
        "-" * 30_000 + "1",
        "+".join(["a"] * 30_000),
        "a" + ".b" * 30_000,
        "a" + "()" * 30_000,
        "(" * 3_000 + ")" * 3_000,
        "if a:\n pass\n" + "elif a:\n pass\n" * (MAX_DEPTH + 1),
        "x = [" + "[" * 150 + "]" * 150 + "]\n" + "lambda: " * 5_000 + "1",
        "9" * 5_000,
        "a\x00b",
        "def f(:\n",
        "x = 1\nprint 'hello'\n",
        "#" * (MAX_BYTES + 1),
    ],
    ids=range(12),
)
def test_a_script_that_cannot_be_parsed_is_refused_in_one_line(source: str) -> None:
    with pytest.raises(Unreadable) as refused:
        Script(source.encode())
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


def test_a_syntax_error_is_reported_with_its_line() -> None:
    with pytest.raises(Unreadable, match=r"^3: syntax error: "):
        Script(b"import torch\nx = 1\ndef f(:\n")


def test_bytes_that_are_not_text_are_reported_with_their_line() -> None:
    with pytest.raises(Unreadable, match=r"^2: not UTF-8"):
        Script(b"import torch\nx = '\xff'\n")


def test_a_long_chain_of_values_is_examined_in_short_time() -> None:
    """Without a cache the work would double with each name."""
    lines = "".join(f"    x{n + 1} = x{n} * x{n} + torch.log(x{n}) / x{n} / x{n}\n" for n in range(300))
    script = Script(f"import torch\ndef loss(x0):\n{lines}    return x300\n".encode())
    assert examine(script).in_fp16 == ()
