"""The flags of the real SGLang on CPU, from its own parser."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.engine.cpu import engine as cpu_engine
from harness.engine.flag_source import read_flags, shipped
from harness.engine.flags import Flag, check_arguments

pytestmark = pytest.mark.live


def test_the_real_parser_agrees_with_the_table_that_ships(tmp_path: Path) -> None:
    """Names, kinds, choices and defaults of every flag; the order of choices that SGLang keeps in a set may differ."""
    installed = cpu_engine.find()
    asked = read_flags(installed.python, installed.sglang_version, installed.env(), cache=tmp_path)
    assert asked.provenance == f"the parser of SGLang {installed.sglang_version}"
    ships = shipped(installed.sglang_version)
    assert ships.exact

    def comparable(flags: Iterable[Flag]) -> list[tuple[object, ...]]:
        return [
            (flag.name, flag.aliases, flag.kind, sorted(map(str, flag.choices)), flag.default, flag.many)
            for flag in flags
        ]

    assert comparable(asked.flags) == comparable(ships.flags)
    assert check_arguments(installed.base_flags, asked).warnings == ()
