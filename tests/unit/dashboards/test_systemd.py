"""Words in unit files: systemd reads back what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboards.systemd import command_line, path_value
from tests.support.systemd import commands, complaints

ODD = ["", " ", "a b", '"', "'", "\\", "\\n", "\n", "\t", "\x01", "\x7f", "%n", "100%", "$HOME", "${X}", "$", ";", "#c"]
ODD += ["é", "中", "~", "*", "`id`", "!", "-", "@a", "a=b", '{"rope": "yarn"}', "--a=b c", "\\x41", "x\\"]
texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)


def _read_back(folder: Path, words: list[str]) -> list[str]:
    unit = folder / "engine.service"
    unit.write_text(f"[Service]\nType=oneshot\nExecStart={command_line(words)}\n", encoding="utf-8")
    (read,) = commands(unit)
    return [read[0], *map(_filled_in, read[1:])]


def _filled_in(word: str) -> str:
    """Do what systemd does with variables when it starts a command; one `$` alone would begin a variable."""
    assert "$" not in word.replace("$$", "")
    return word.replace("$$", "$")


def test_odd_words(tmp_path: Path) -> None:
    """Quotes, escapes, specifiers and variables that a value may hold mean themselves."""
    words = ["/bin/echo", *ODD, "--flag", *ODD]
    assert _read_back(tmp_path, words) == words


@settings(max_examples=15, deadline=None)
@given(words=st.lists(texts, min_size=1, max_size=40))
def test_any_words(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    """Whatever the words are, systemd reads the same ones."""
    command = ["/bin/echo", *words]
    assert _read_back(tmp_path_factory.mktemp("unit"), command) == command


def test_each_flag_has_a_line() -> None:
    """So that a person sees what changes."""
    assert command_line(["/bin/x", "-m", "y", "--a", "1", "--b"]) == "/bin/x -m y \\\n  --a 1 \\\n  --b"


def test_program_with_odd_name(tmp_path: Path) -> None:
    """A program's name may have spaces and percent signs; systemd finds it."""
    program = tmp_path / "100% a b"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert _read_back(tmp_path, [str(program), "x"]) == [str(program), "x"]


def test_path_as_a_value(tmp_path: Path) -> None:
    """A percent sign in a path is no specifier."""
    unit = tmp_path / "engine.service"
    text = f"[Service]\nType=oneshot\nExecStart=/bin/true\nWorkingDirectory={path_value('/a b/%n/100%')}\n"
    unit.write_text(text, encoding="utf-8")
    assert complaints(unit) == ""
