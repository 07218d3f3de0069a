"""Holds JSON against docs/schemas as Rung promises it: nothing is missing, nothing is there that is not documented."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
NAMES = sorted(path.stem for path in SCHEMAS.glob("*.json"))
Schema = Mapping[str, Any]


@cache
def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


def strict(found: Any) -> Any:
    """Return a schema that allows no further keys. For readers they are allowed: later versions may add some."""
    if isinstance(found, list):
        return [strict(each) for each in found]
    if not isinstance(found, dict):
        return found
    tight = {key: strict(value) for key, value in found.items()}
    return {"additionalProperties": False, **tight} if _is_object(found) else tight


def _is_object(found: Schema) -> bool:
    # The fields of an object may have the name `properties`, too.
    return "object" in found.get("type", ()) and "properties" in found


@cache
def validator(name: str) -> Draft202012Validator:
    resources = [(f"{each}.json", Resource.from_contents(strict(schema(each)))) for each in NAMES]
    return Draft202012Validator(strict(schema(name)), registry=Registry().with_resources(resources))


def problems(name: str, output: Any) -> list[str]:
    """Return what is wrong with an output, each with its place."""
    return [f"{error.json_path}: {error.message[:300]}" for error in validator(name).iter_errors(output)]


def properties(found: Schema, path: str = "") -> Iterator[str]:
    """Yield the path of every documented property; [] is any item of a list, {} any value of an object."""
    if "$ref" in found:
        yield from properties(schema(found["$ref"].removesuffix(".json")), path)
    for name, below in found.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from properties(below, f"{path}.{name}")
    for key, sign in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(found.get(key), dict):
            yield from properties(found[key], path + sign)


def seen(found: Schema, output: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every documented property that is here; with a ! if it has a value, and not only null."""
    if "$ref" in found:
        yield from seen(schema(found["$ref"].removesuffix(".json")), output, path)
    if isinstance(output, list) and isinstance(found.get("items"), dict):
        for each in output:
            yield from seen(found["items"], each, f"{path}[]")
    if not isinstance(output, dict):
        return
    for key, value in output.items():
        if key in found.get("properties", {}):
            yield f"{path}.{key}"
            if value is not None:
                yield f"{path}.{key}!"
            yield from seen(found["properties"][key], value, f"{path}.{key}")
        elif isinstance(found.get("additionalProperties"), dict):
            yield from seen(found["additionalProperties"], value, path + "{}")
