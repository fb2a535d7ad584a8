"""Where flags are known from: the parser, the cache, the shipped tables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.engine.flag_source import default_cache, number_of, read_flags, shipped

SERVER_ARGS = """
import argparse
from pathlib import Path
print("noise on stdout")

def human_readable_int(text):
    return int(text)

class DeprecatedAction(argparse.Action):
    pass

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        with Path(__file__).with_name("asked").open("a") as asked:
            asked.write("x")
        parser.add_argument("--model-path", "--model", type=str, required=True)
        parser.add_argument("--policy", choices=["b", "a"], default="a", type=str)
        parser.add_argument("--size", type=int, default=0)
        parser.add_argument("--tokens", type=human_readable_int)
        parser.add_argument("--many", type=float, nargs="+")
        parser.add_argument("--on", action="store_true")
        parser.add_argument("--old", action=DeprecatedAction, nargs=0)
        parser.add_argument("-x", type=int)
"""


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """Make a package `sglang` of version 9.9 that declares a few flags; return the folder to put on PYTHONPATH."""
    package = tmp_path / "site" / "sglang" / "srt"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "server_args.py").write_text(SERVER_ARGS)
    info = tmp_path / "site" / "sglang-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 9.9\n")
    return tmp_path / "site"


def asked(engine: Path) -> int:
    """Count how often the parser was built."""
    path = engine / "sglang" / "srt" / "asked"
    return len(path.read_text()) if path.exists() else 0


def test_the_parser_is_asked_once(engine: Path, tmp_path: Path) -> None:
    """Names, aliases, kinds, choices and defaults come from the parser, and the second time from the cache."""
    env = {"PYTHONPATH": str(engine)}
    first = read_flags(Path(sys.executable), "9.9", env, cache=tmp_path / "cache")
    assert first.exact
    assert first.provenance == "the parser of SGLang 9.9"
    found = {flag.name: flag for flag in first.flags}
    assert list(found) == ["many", "model-path", "old", "on", "policy", "size", "tokens"]
    assert found["model-path"].aliases == ("model",)
    assert (found["policy"].choices, found["policy"].default) == (("b", "a"), "a")
    assert (found["size"].kind, found["size"].default) == ("int", 0)
    assert found["tokens"].kind == "human_int"
    assert (found["many"].kind, found["many"].many) == ("float", True)
    assert (found["on"].kind, found["on"].default) == ("switch", False)
    assert found["old"].deprecated
    assert read_flags(Path(sys.executable), "9.9", env, cache=tmp_path / "cache") == first
    assert asked(engine) == 1


def test_a_damaged_cache_is_ignored(engine: Path, tmp_path: Path) -> None:
    """Half a file, or a file of something else, is asked for again and written over."""
    env, cache = {"PYTHONPATH": str(engine)}, tmp_path / "cache"
    first = read_flags(Path(sys.executable), "9.9", env, cache=cache)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", b"{}", b"\xff\xfe", b'{"sglang_version": 3}'):
        file.write_bytes(damage)
        assert read_flags(Path(sys.executable), "9.9", env, cache=cache) == first
        assert file.read_bytes() == whole
    assert asked(engine) == 6


def test_another_version_is_asked_again(engine: Path, tmp_path: Path) -> None:
    """The cache of a version says nothing of the next one; a parser of another version than told is not believed."""
    env, cache = {"PYTHONPATH": str(engine)}, tmp_path / "cache"
    read_flags(Path(sys.executable), "9.9", env, cache=cache)
    assert read_flags(Path(sys.executable), "9.8", env, cache=cache).sglang_version == "0.5.23"
    assert asked(engine) == 2


def test_a_cache_that_cannot_be_written_costs_nothing_else(engine: Path, tmp_path: Path) -> None:
    """Where the cache folder would be there is a file."""
    (tmp_path / "cache").write_text("in the way")
    table = read_flags(Path(sys.executable), "9.9", {"PYTHONPATH": str(engine)}, cache=tmp_path / "cache")
    assert table.sglang_version == "9.9"


@pytest.mark.parametrize("said", ["exit 1", "echo '{'", "echo '[]'", "echo '{\"flags\": []}'", "true"])
def test_a_parser_that_cannot_run_leaves_the_shipped_table(said: str, tmp_path: Path) -> None:
    """Without the GPU's libraries SGLang does not import; the table that ships for the version counts then."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{said}\n")
    python.chmod(0o755)
    table = read_flags(python, "0.5.23", cache=tmp_path / "cache")
    assert (table.sglang_version, table.exact) == ("0.5.23", True)
    assert not (tmp_path / "cache").exists()


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    """It is `find_local_engine` that says so; here the shipped table counts."""
    assert read_flags(tmp_path / "nowhere", "0.5.15", cache=tmp_path).sglang_version == "0.5.15"


@pytest.mark.parametrize(
    ("version", "taken", "exact"),
    [
        ("0.5.15", "0.5.15", True),
        ("0.5.23", "0.5.23", True),
        ("0.5.15.post2", "0.5.15", False),
        ("0.5.19", "0.5.15", False),
        ("0.6.0", "0.5.23", False),
        ("0.4.9", "0.5.15", False),
        ("nightly", "0.5.15", False),
    ],
)
def test_the_nearest_older_table_is_taken(version: str, taken: str, exact: bool) -> None:
    """A version without a table of its own has that of the newest older one, which is known not to be exact."""
    table = shipped(version)
    assert (table.sglang_version, table.exact) == (taken, exact)
    assert "parser of SGLang" in table.provenance


def test_versions_are_compared_as_numbers() -> None:
    """0.5.9 is older than 0.5.15."""
    assert number_of("0.5.9") < number_of("0.5.15") < number_of("0.5.15.1") < number_of("0.5.23rc1")
    assert number_of("main") == ()


def test_the_cache_is_in_the_user_s_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a user keeps caches, so that clearing them clears this too."""
    monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "hicache-tune" / "flags"
