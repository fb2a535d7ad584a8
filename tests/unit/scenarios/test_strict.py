"""A fault in a file is said in one sentence, with the key at fault and the nearest valid one."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from scenarios.errors import ConfigError, ScenarioError
from scenarios.strict import StrictModel, nearest


class _Circle(StrictModel):
    kind: Literal["circle"]
    radius: float


class _Square(StrictModel):
    kind: Literal["square"]
    side: float


class _Inner(StrictModel):
    depth: int = 1


class _Outer(StrictModel):
    width: int = 1
    inner: _Inner = _Inner()
    maybe: _Inner | None = None
    several: tuple[_Inner, ...] = ()
    named: dict[str, _Inner] | None = None
    shape: Annotated[_Circle | _Square, Field(discriminator="kind")] = _Circle(kind="circle", radius=1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"widht": 2}, "f.toml: unknown key `widht`; did you mean `width`?"),
        ({"inner": {"dept": 2}}, "f.toml: unknown key `inner.dept`; did you mean `depth`?"),
        ({"maybe": {"dept": 2}}, "f.toml: unknown key `maybe.dept`; did you mean `depth`?"),
        ({"several": [{}, {"dept": 2}]}, "f.toml: unknown key `several.1.dept`; did you mean `depth`?"),
        ({"named": {"x": {"dept": 2}}}, "f.toml: unknown key `named.x.dept`; did you mean `depth`?"),
        ({"inner": {"zzz": 2}}, "f.toml: unknown key `inner.zzz`; valid: depth"),
        (
            {"shape": {"kind": "circle", "radios": 1}},
            "f.toml: unknown key `shape.radios`; did you mean `radius`? (and 1 more)",
        ),
        ({"shape": {"kind": "circel"}}, "f.toml: `shape`: unknown kind `circel`; did you mean `circle`?"),
        ({"shape": {"kind": "blob"}}, "f.toml: `shape`: unknown kind `blob`; valid: circle, square"),
        ({"shape": {}}, "f.toml: `shape`: the key `kind` is missing"),
        ({"shape": {"kind": "square"}}, "f.toml: `shape.side`: field required"),
        ({"width": "x", "inner": 3}, "f.toml: `width`: input should be a valid integer"),
        (7, "f.toml: Input should be a valid dictionary or instance of _Outer"),
    ],
)
def test_one_sentence(data: object, message: str) -> None:
    """Each kind of fault names the file, the path that the user wrote and what is valid there."""
    with pytest.raises(ConfigError) as caught:
        _Outer.parse(data, where="f.toml")
    assert str(caught.value).startswith(message)


def test_error_class_is_chosen_by_the_caller() -> None:
    """The caller says which error its users know."""
    with pytest.raises(ScenarioError):
        _Outer.parse({"x": 1}, where="f", error=ScenarioError)


def test_nearest_says_nothing_without_choices() -> None:
    """With nothing to choose from there is no hint."""
    assert nearest("x", []) == ""


def test_a_list_that_nobody_would_read_is_left_out() -> None:
    """As that of all flags of an engine."""
    assert nearest("zzz", ["depth", "width"]) == "; valid: depth, width"
    assert nearest("zzz", [f"flag-{number}" for number in range(450)]) == ""
