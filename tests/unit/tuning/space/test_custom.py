"""Dimensions of the user's own, as `[[search.dimension]]` tables."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from scenarios.errors import ConfigError
from tuning.space import WITH_HICACHE, Condition, Dimension, dimensions_of

WHERE = "hicache-tune.toml, [[search.dimension]]"


def one(text: str) -> Dimension:
    """Read one table as it stands in the file."""
    (found,) = dimensions_of([tomllib.loads(text)], where=WHERE)
    return found


def refused(*tables: Any) -> str:
    """Return why the tables are refused."""
    with pytest.raises(ConfigError) as refusal:
        dimensions_of(tables, where=WHERE)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('flag = "a"\ntype = "int"\nrange = [1, 4]', Dimension(name="a", low=1, high=4, step=1)),
        ('flag = "--a"\ntype = "int"\nrange = [1, 10]\nstep = 4', Dimension(name="a", low=1, high=9, step=4)),
        ('flag = "a"\ntype = "int"\nrange = [8, 512]\nlog = true', Dimension(name="a", low=8, high=512, log=True)),
        ('flag = "a"\ntype = "int"\nchoices = [8, 16.0]', Dimension(name="a", choices=(8, 16))),
        ('flag = "a"\ntype = "int"\nchoices = ["default", 8]', Dimension(name="a", choices=("default", 8))),
        (
            'flag = "a"\ntype = "float"\nrange = [0.3, 1.3]\nstep = 0.5',
            Dimension(name="a", low=0.3, high=1.3, step=0.5),
        ),
        ('flag = "a"\ntype = "float"\nrange = [0.1, 9]\nlog = true', Dimension(name="a", low=0.1, high=9, log=True)),
        ('flag = "a"\ntype = "categorical"\nchoices = ["x", "y", "x"]', Dimension(name="a", choices=("x", "y"))),
        ('flag = "a"\ntype = "switch"', Dimension(name="a", choices=(False, True))),
        ('flag = "a"\ntype = "switch"\nchoices = ["on"]', Dimension(name="a", choices=(True,))),
        ('flag = "a"\ntype = "switch"\nchoices = [true, "off"]', Dimension(name="a", choices=(True, False))),
        (
            'flag = "a"\ntype = "switch"\nwhen = { hicache = "on", page-size = [16, 32] }',
            Dimension(
                name="a",
                choices=(False, True),
                when=(Condition(name="hicache", values=("on",)), Condition(name="page_size", values=(16, 32))),
            ),
        ),
        (
            'flag = "hicache-storage-backend"\ntype = "categorical"\nchoices = ["default", "file"]',
            Dimension(name="hicache-storage-backend", choices=("default", "file"), when=(WITH_HICACHE,)),
        ),
        (
            'flag = "hicache-size"\ntype = "int"\nrange = [16, 256]\nlog = true',
            Dimension(name="hicache_size", low=16, high=256, log=True, when=(WITH_HICACHE,)),
        ),
        (
            'flag = "transfer"\ntype = "categorical"\nchoices = ["direct/page_first"]',
            Dimension(name="transfer", choices=("direct/page_first_direct",), when=(WITH_HICACHE,)),
        ),
    ],
)
def test_a_table_is_a_dimension(text: str, expected: Dimension) -> None:
    """Each type, with a range or a list, and with conditions; what is of HiCache exists only with it."""
    assert one(text) == expected
    assert [type(choice) for choice in one(text).choices] == [type(choice) for choice in expected.choices]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"flag": "a"}, "1 (a): `type`: field required"),
        ({"type": "int"}, "1: `flag`: field required"),
        ("a", "1: Input should be a valid dictionary"),
        ({"flag": "a", "type": "integer"}, "1 (a): `type`: input should be 'int', 'float', 'categorical' or 'switch'"),
        ({"flag": "a", "type": "int", "rnage": [1, 2]}, "1 (a): unknown key `rnage`; did you mean `range`?"),
        ({"flag": "a", "type": "int", "range": [1, 2], "wen": {}}, "1 (a): unknown key `wen`; did you mean `when`?"),
        ({"flag": "a", "type": "int"}, "1 (a): give either `range = [LOW, HIGH]` or `choices`"),
        ({"flag": "a", "type": "int", "range": [1, 2], "choices": [1]}, "1 (a): give either `range = [LOW, HIGH]` or"),
        ({"flag": "a", "type": "int", "range": [1, 2.5]}, "1 (a): `2.5` is not a whole number"),
        ({"flag": "a", "type": "int", "choices": ["x"]}, "1 (a): `x` is not a whole number"),
        ({"flag": "a", "type": "int", "choices": [True]}, "1 (a): `True` is not a whole number"),
        ({"flag": "a", "type": "float", "range": [1, float("nan")], "step": 1}, "1 (a): `nan` is not a number"),
        ({"flag": "a", "type": "float", "range": [0, 1]}, "1 (a): give the `step` of the range, or `log = true`"),
        ({"flag": "a", "type": "int", "range": [2, 1]}, "1 (a): 2:1:1 is empty; give LOW <= HIGH and STEP > 0"),
        (
            {"flag": "a", "type": "int", "range": [0, 9], "log": True},
            "1 (a): 0:9:log: a logarithmic scale begins above",
        ),
        (
            {"flag": "a", "type": "int", "range": [1, 9], "log": True, "step": 2},
            "1 (a): a logarithmic scale has no step",
        ),
        ({"flag": "a", "type": "int", "choices": [1], "step": 2}, "1 (a): `step` and `log` belong to a `range`"),
        ({"flag": "a", "type": "categorical"}, "1 (a): `choices` are missing; list the values"),
        ({"flag": "a", "type": "categorical", "range": [1, 2]}, "1 (a): a `range` is of numbers; give `choices`"),
        ({"flag": "a", "type": "switch", "choices": ["yes"]}, "1 (a): a switch is `off` or `on`"),
        ({"flag": "page-size", "type": "int", "choices": [0]}, "1 (page-size): `page_size`: input should be greater"),
        (
            {"flag": "hicache-write-policy", "type": "categorical", "choices": ["writeback"]},
            "1 (hicache-write-policy): unknown value `writeback`; did you mean `write_back`?",
        ),
        ({"flag": "hicache", "type": "switch"}, "1 (hicache): --hicache is no dimension of its own: give `hicache = "),
        ({"flag": "hicache-io-backend", "type": "switch"}, "1 (hicache-io-backend): --hicache-io-backend is no dimen"),
    ],
)
def test_a_table_that_is_wrong_is_named(table: Any, said: str) -> None:
    """Which table, which key, and what to write."""
    assert refused(table).startswith(f"{WHERE} {said}")


def test_two_tables_that_exclude_each_other_are_refused() -> None:
    """The same flag twice, and the two ways to size the host pool."""
    again = {"flag": "a", "type": "switch"}
    assert refused(again, again) == f"{WHERE} 2 (a): it is given twice; give all its values at once"
    pools = [{"flag": f"hicache-{name}", "type": "int", "choices": [2]} for name in ("size", "ratio")]
    assert refused(*pools) == f"{WHERE}: SGLang ignores hicache-ratio beside hicache-size; keep one of them"
