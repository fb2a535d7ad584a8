"""Where the flags of an engine are known from: its own parser, asked once, or the tables that ship with this tool."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from harness.engine import dump_flags
from harness.engine.flags import FlagTable
from harness.errors import StoreError
from harness.files import write_atomically

ASK_S = 180.0
"""Importing SGLang with cold files takes half a minute on some machines."""
SHIPPED = Path(__file__).parent / "data"


def read_flags(
    python: Path, sglang_version: str, env: Mapping[str, str] | None = None, *, cache: Path | None = None
) -> FlagTable:
    """Return the flags of the SGLang that `python` has; its parser is asked once for each Python and version.

    When the parser cannot run, as without the GPU's libraries, the table that ships for the version counts, or else
    that of the nearest version, which is not `exact`.
    """
    path = (cache or default_cache()) / _file_name(python, sglang_version)
    known = _read(path)
    if known is not None and known.sglang_version == sglang_version:
        return known
    asked = _ask(python, env or {})
    if asked is None or asked.sglang_version != sglang_version:
        return shipped(sglang_version)
    try:
        write_atomically(path, asked.model_dump_json(exclude_defaults=True))
    except StoreError:
        return asked  # a cache that cannot be written costs the next start some seconds, nothing else
    return asked


def shipped(sglang_version: str) -> FlagTable:
    """Return the table that ships for this version; else that of the newest older one, which is not `exact`."""
    tables = sorted(map(_read_shipped, SHIPPED.glob("flags-*.json")), key=lambda table: number_of(table.sglang_version))
    older = [table for table in tables if number_of(table.sglang_version) <= number_of(sglang_version)]
    nearest = older[-1] if older else tables[0]
    return nearest.model_copy(update={"exact": nearest.sglang_version == sglang_version})


def number_of(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, to compare: `0.5.15.post1` gives (0, 5, 15)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found.group(0).split(".")) if found else ()


def default_cache() -> Path:
    """Return the folder of the cached tables."""
    return platformdirs.user_cache_path("hicache-tune") / "flags"


def _ask(python: Path, env: Mapping[str, str]) -> FlagTable | None:
    """Ask the engine's own parser; None when it cannot run."""
    try:
        answer = subprocess.run(
            [python, dump_flags.__file__],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_S,
            env={**os.environ, **env},
        )
        said = json.loads(answer.stdout)
        return FlagTable.model_validate({**said, "provenance": f"the parser of SGLang {said['sglang_version']}"})
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None


def _read(path: Path) -> FlagTable | None:
    """Read a cached table; None when there is none, or a damaged or older one."""
    try:
        return FlagTable.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _read_shipped(path: Path) -> FlagTable:
    return FlagTable.model_validate_json(path.read_bytes())


def _file_name(python: Path, sglang_version: str) -> str:
    # Not resolved: the Python of an environment is a link to one that many share.
    which = hashlib.sha256(str(python.absolute()).encode()).hexdigest()[:12]
    return f"{which}-{sglang_version}.json"
