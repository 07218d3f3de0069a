"""Tests that setting a key of a config file changes its value and no other byte."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.config_files.edit import MAX_CHARS, find, set_keys
from rung.jobs.model.errors import ConfigFileError

YAML = """\
# Our best run so far.
optimizer: {name: adamw, lr: 1e-3, betas: [0.9, 0.999]}   # lr: tuned by hand

train:
    clip_grad_norm:
        max_norm:  5.0 # was 1.0
    use_amp: yes   # off on the old cards
    precision: '16-mixed'
    resume:        # nothing yet
    "odd.key": 3
stages:
- lr: 0.1   # warm-up
- {lr: 0.01}
"""
JSON = """{
  "fp16": {"enabled": true, "initial_scale_power": 16},
\t"optimizer":{"params":{"lr":1e-3,"betas":[0.9,0.95]}}
}"""
TOML = """\
# defaults
lr = 1e-3     # tuned
[train]
clip = 5      # max_norm
amp = true
precision = '16-mixed'
"odd.key" = 3
opt = { lr = 0.1, betas = [ 0.9, 0.99 ] }
[[stages]]
lr = 0.1
[[stages]]
lr = 0.01 # second
"""


@pytest.mark.parametrize(
    ("key", "value", "line", "becomes"),
    [
        ("optimizer.lr", 1e-4, "adamw, lr: 1e-3, betas", "adamw, lr: 0.0001, betas"),
        ("optimizer.lr", 1e-5, "lr: 1e-3,", "lr: 1.0e-05,"),
        ("optimizer.betas.1", 0.95, "[0.9, 0.999]", "[0.9, 0.95]"),
        ("train.clip_grad_norm.max_norm", 0.5, "max_norm:  5.0 # was", "max_norm:  0.5 # was"),
        ("train.use_amp", False, "use_amp: yes   # off", "use_amp: false   # off"),
        ("train.precision", "32-true", "'16-mixed'", "'32-true'"),
        ("train.resume", "/c/step_5.pt", "resume:        #", "resume: /c/step_5.pt        #"),
        ("train.resume", "a: b", "resume:        #", 'resume: "a: b"        #'),
        ("train.odd\\.key", 4, '"odd.key": 3', '"odd.key": 4'),
        ("stages.0.lr", 0.02, "- lr: 0.1 ", "- lr: 0.02 "),
        ("stages.1.lr", 0.02, "{lr: 0.01}", "{lr: 0.02}"),
    ],
)
def test_yaml_keeps_its_comments_order_and_spaces(key: str, value: Any, line: str, becomes: str) -> None:
    assert YAML.count(line) == 1
    assert set_keys(YAML, "c.yaml", {key: value}) == YAML.replace(line, becomes)


@pytest.mark.parametrize(
    ("key", "value", "line", "becomes"),
    [
        ("fp16.enabled", False, '"enabled": true', '"enabled": false'),
        ("optimizer.params.lr", 1e-5, '"lr":1e-3', '"lr":1e-05'),
        ("optimizer.params.betas.0", 0.8, "[0.9,", "[0.8,"),
        ("fp16.initial_scale_power", 'a"b', ": 16}", ': "a\\"b"}'),
    ],
)
def test_json_keeps_its_layout(key: str, value: Any, line: str, becomes: str) -> None:
    assert set_keys(JSON, "ds.json", {key: value}) == JSON.replace(line, becomes)


@pytest.mark.parametrize(
    ("key", "value", "line", "becomes"),
    [
        ("lr", 1e-4, "lr = 1e-3     # tuned", "lr = 0.0001     # tuned"),
        ("train.clip", 0.5, "clip = 5      #", "clip = 0.5      #"),
        ("train.amp", False, "amp = true", "amp = false"),
        ("train.precision", "32-true", "'16-mixed'", '"32-true"'),
        ("train.odd\\.key", 4, '"odd.key" = 3', '"odd.key" = 4'),
        ("train.opt.lr", 0.2, "{ lr = 0.1,", "{ lr = 0.2,"),
        ("train.opt.betas.1", 0.9, "[ 0.9, 0.99 ]", "[ 0.9, 0.9 ]"),
        ("stages.1.lr", 0.02, "lr = 0.01 # second", "lr = 0.02 # second"),
    ],
)
def test_toml_keeps_its_comments(key: str, value: Any, line: str, becomes: str) -> None:
    assert set_keys(TOML, "c.toml", {key: value}) == TOML.replace(line, becomes)


def test_line_endings_and_a_byte_order_mark_stay() -> None:
    assert set_keys("\ufefflr: 1\r\nb: 2\r\n", "c.yml", {"lr": 0.5}) == "\ufefflr: 0.5\r\nb: 2\r\n"
    assert set_keys('\ufeff{"lr": 1}\r\n', "c.json", {"lr": 0.5}) == '\ufeff{"lr": 0.5}\r\n'
    assert set_keys("lr = 1\r\nb = 2\r\n", "c.toml", {"lr": 0.5}) == "lr = 0.5\r\nb = 2\r\n"


def test_an_anchor_keeps_its_name_and_several_keys_can_be_set() -> None:
    text = "a: &x !!float 1.5 # keep\nb: *x\nc: 'it''s'\n"
    assert set_keys(text, "c.yaml", {"a": 0.25, "c": "it's 2"}) == ("a: &x !!float 0.25 # keep\nb: *x\nc: 'it''s 2'\n")


# What is refused


@pytest.mark.parametrize(
    ("name", "text", "key", "message"),
    [
        ("c.yaml", YAML, "optimizer.lrr", "c.yaml: optimizer.lrr: there is no such key; did you mean 'lr'?"),
        ("c.yaml", YAML, "model.lr", "model: there is no such key; known here: optimizer, train, stages"),
        ("c.yaml", YAML, "stages.2.lr", "stages.2: there is no such key; known here: 0, 1"),
        ("c.yaml", YAML, "optimizer", "optimizer: is no single value; in it are: name, lr, betas"),
        ("c.yaml", YAML, "optimizer.lr.x", "optimizer.lr.x: there is no such key"),
        ("c.yaml", "a: &x 1\nb: *x\n", "b", "b: is an alias"),
        ("c.yaml", "a: &x {lr: 1}\nb: *x\n", "b.lr", "b.lr: is an alias"),
        ("c.yaml", "a: [&x 1, *x]\n", "a.1", "a.1: is an alias"),
        ("c.yaml", "a: |\n  text\nb: 1\n", "a", "a: is a block of text"),
        ("c.yaml", "a: !python/name:os.system x\n", "a", "a: is no plain value"),
        ("c.yaml", "a: [1\n", "a", "line 2: is not YAML"),
        ("c.yaml", "a: 1\n---\na: 2\n", "a", "is not YAML"),
        ("c.yaml", "", "a", "a: there is no such key"),
        ("c.yaml", "[" * 5000, "a", "nested too deeply"),
        ("c.json", JSON, "fp16.enable", "c.json: fp16.enable: there is no such key; did you mean 'enabled'?"),
        ("c.json", JSON, "optimizer.params", "optimizer.params: is no single value"),
        ("c.json", '{"a": 1,}', "a", "line 1: is not JSON"),
        ("c.toml", TOML, "train.clp", "c.toml: train.clp: there is no such key; did you mean 'clip'?"),
        ("c.toml", TOML, "train.opt", "train.opt: is no single value"),
        ("c.toml", "a = \n", "a", "is not TOML"),
        ("c.yaml", "a: 1\n" + "#" * MAX_CHARS, "a", "is no config file"),
    ],
)
def test_a_key_that_cannot_be_set_is_refused_with_a_reason(name: str, text: str, key: str, message: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        find(text, name, key)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_that_the_file_would_read_back_differently_is_refused() -> None:
    with pytest.raises(ConfigFileError, match=r"cannot be set to 0\.5 there|is no plain value"):
        set_keys("a: !!int 1\n", "c.yaml", {"a": 0.5})


# Any file

NAMES = st.text("abcxyz_", min_size=1, max_size=6)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
)
TREES = st.recursive(
    st.dictionaries(NAMES, SCALARS, min_size=1, max_size=4),
    lambda inner: st.dictionaries(
        NAMES, st.one_of(SCALARS, inner, st.lists(inner, min_size=1, max_size=3)), min_size=1
    ),
    max_leaves=12,
)


def paths(value: Any) -> list[tuple[str, ...]]:
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [(str(name), *rest) for name, each in items for rest in paths(each)]
    return [()]


def put(value: Any, path: tuple[str, ...], new: Any) -> Any:
    if not path:
        return new
    name: Any = int(path[0]) if isinstance(value, list) else path[0]
    copied = list(value) if isinstance(value, list) else dict(value)
    copied[name] = put(value[name], path[1:], new)
    return copied


def only_one_stretch_differs(before: str, after: str, name: str, key: str) -> None:
    spot = find(before, name, key)
    assert after.startswith(before[: spot.start]) and after.endswith(before[spot.end :])


@settings(max_examples=40)
@given(TREES, SCALARS, st.data(), st.booleans())
def test_setting_a_key_of_any_yaml_changes_only_its_value(tree: Any, new: Any, data: st.DataObject, flow: bool) -> None:
    path = data.draw(st.sampled_from(paths(tree)))
    text = yaml.safe_dump(tree, allow_unicode=True, default_flow_style=flow, sort_keys=False)
    after = set_keys(text, "c.yaml", {".".join(path): new})
    assert yaml.safe_load(after) == put(tree, path, new)
    only_one_stretch_differs(text, after, "c.yaml", ".".join(path))


@settings(max_examples=40)
@given(TREES, SCALARS, st.data(), st.sampled_from([None, 0, 2, "\t"]))
def test_setting_a_key_of_any_json_changes_only_its_value(
    tree: Any, new: Any, data: st.DataObject, indent: Any
) -> None:
    path = data.draw(st.sampled_from(paths(tree)))
    text = json.dumps(tree, indent=indent)
    after = set_keys(text, "c.json", {".".join(path): new})
    assert json.loads(after) == put(tree, path, new)
    only_one_stretch_differs(text, after, "c.json", ".".join(path))


def toml(tree: dict[str, Any], at: tuple[str, ...] = ()) -> str:
    """Write a tree as TOML: plain values with comments, tables under their names, lists of tables in line."""
    lines = [f"{name} = {inline(value)}  # {name}" for name, value in tree.items() if not isinstance(value, dict)]
    for name, value in tree.items():
        if isinstance(value, dict):
            lines += [f"[{'.'.join((*at, name))}]", toml(value, (*at, name))]
    return "\n".join(lines)


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {inline(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[ " + ", ".join(map(inline, value)) + " ]"
    return json.dumps(value, ensure_ascii=True) if not isinstance(value, float) else repr(value)


@settings(max_examples=40)
@given(TREES.filter(lambda tree: "\\ud" not in json.dumps(tree)), SCALARS, st.data())
def test_setting_a_key_of_any_toml_changes_only_its_value(tree: Any, new: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(paths(tree)))
    text = toml(tree)
    after = set_keys(text, "c.toml", {".".join(path): new})
    assert tomllib.loads(after) == put(tree, path, new)
    only_one_stretch_differs(text, after, "c.toml", ".".join(path))
