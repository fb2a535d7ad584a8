"""The strict base of every model that is read from a file.

A misspelled key that is silently ignored leaves the user with a measurement of something else, so unknown
keys fail, and the message names the nearest valid one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scenarios.errors import ConfigError

_UNIONS = ("anyOf", "oneOf", "allOf")
_HOLDERS = {"$ref", "properties", "discriminator", "items", "additionalProperties"}


class StrictModel(BaseModel):
    """A frozen pydantic model that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @classmethod
    def parse(cls, data: object, *, where: str, error: type[ConfigError] = ConfigError) -> Self:
        """Validate `data`; raise `error` with one sentence that names `where` and the key at fault."""
        try:
            return cls.model_validate(data)
        except ValidationError as problem:
            raise error(f"{where}: {explain(problem, cls)}") from None


class FilePart(StrictModel):
    """A part of a scenario file: no value passes for one of another type, and docstrings describe the keys."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, use_attribute_docstrings=True)


def later(default: Any = None) -> Any:
    """Declare a key that came after studies were recorded.

    While it has its default it is left out of what is written, so fingerprints of older studies stay what they are.
    """
    return Field(default=default, exclude_if=lambda value: value == default)


def explain(problem: ValidationError, model: type[BaseModel]) -> str:
    """Say one fault of a validation in a sentence, with the nearest valid key when a key is unknown."""
    faults = problem.errors(include_url=False)
    # A misspelled key is also a missing one; that it is unknown tells the user more.
    fault = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    context = fault.get("ctx", {})
    path, _ = _walk(model, fault["loc"])
    if fault["type"] == "extra_forbidden":
        _, keys = _walk(model, fault["loc"][:-1])
        message = f"unknown key `{path}`{nearest(str(fault['loc'][-1]), keys)}"
    elif fault["type"] == "union_tag_invalid":
        tag, tags = context["tag"], _unquoted(context["expected_tags"]).split(", ")
        message = f"`{path}`: unknown {_unquoted(context['discriminator'])} `{tag}`{nearest(tag, tags)}"
    elif fault["type"] == "union_tag_not_found":
        message = f"`{path}`: the key `{_unquoted(context['discriminator'])}` is missing"
    else:
        said = fault["msg"].removeprefix("Value error, ")
        message = f"`{path}`: {said[:1].lower()}{said[1:]}" if path else said
    more = len(faults) - 1
    return f"{message} (and {more} more)" if more else message


def _unquoted(text: str) -> str:
    """Drop the quotes that pydantic puts around names."""
    return text.replace("'", "")


LISTED = 60
"""SGLang has 450 flags: a sentence that lists them says nothing."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return `; did you mean X?`, or the list of choices when none is near and they fit in a sentence."""
    valid = sorted(choices)
    match = closest(word, valid)
    if match:
        return f"; did you mean `{match}`?"
    return f"; valid: {', '.join(valid)}" if 0 < len(valid) <= LISTED else ""


def closest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` is probably a misspelling of."""
    return next(iter(difflib.get_close_matches(word, sorted(choices), n=1, cutoff=0.5)), None)


def _walk(model: type[BaseModel], location: tuple[int | str, ...]) -> tuple[str, list[str]]:
    """Follow a fault's location: return it as the path that the user wrote, and the valid keys at its end.

    The location of pydantic also holds the tags of unions, which are no keys of the file.
    """
    schema = model.model_json_schema()
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    node = _resolve(schema, definitions)
    path: list[str] = []
    for part in location:
        tags = node.get("discriminator", {}).get("mapping", {})
        if part in tags:
            node = _resolve({"$ref": tags[part]}, definitions)
            continue
        path.append(str(part))
        keyed = node.get("properties", {}).get(part, node.get("additionalProperties", {}))
        node = _resolve(node.get("items", {}) if isinstance(part, int) else keyed, definitions)
    return ".".join(path), list(node.get("properties", {}))


def _resolve(node: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Follow references and optional values down to what can hold keys; `{}` when there is none."""
    while isinstance(node, dict):
        if "$ref" in node:
            node = definitions[node["$ref"].rsplit("/", 1)[-1]]
        elif "discriminator" not in node and any(key in node for key in _UNIONS):
            options = [option for key in _UNIONS for option in node.get(key, [])]
            node = next((option for option in options if _HOLDERS & option.keys()), {})
        else:
            return node
    return {}
