"""What systemd makes of unit files (`systemd-analyze`, of Debian's package systemd); none of them is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|([^ ]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def complaints(*units: Path) -> str:
    """Return what systemd warns about in the units and what they name; fail when it cannot take them at all."""
    return _analyze("warning", "verify", "--man=no", *map(str, units))


def commands(unit: Path) -> list[list[str]]:
    """Return the commands of a unit, drop-ins in `UNIT.d` beside it included, as systemd has read them.

    Variables are filled in only when a command is started: `$$` is still two.
    """
    dump = _analyze("debug", "verify", "--man=no", str(unit))
    return [_words(line) for line in re.findall(r"Command Line: (.*)", dump)]


def next_elapse(calendar: str) -> str:
    """Return what systemd says about an OnCalendar= value; fail when it is none."""
    return _analyze("warning", "calendar", calendar)


def exposure(unit: Path) -> float:
    """Return systemd's rating of a service, from 0 (can do nothing) to 10 (can do everything)."""
    said = _analyze("warning", "security", "--offline=true", "--threshold=100", str(unit))
    return float(re.findall(r"Overall exposure level for .*: ([0-9.]+)", said)[0])


def _analyze(level: str, *arguments: str) -> str:
    program = shutil.which("systemd-analyze")
    assert program is not None, "install Debian's package systemd: these tests ask systemd itself"
    ended = subprocess.run(
        [program, *arguments],
        capture_output=True,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": level, "SYSTEMD_COLORS": "0", "LC_ALL": "C.UTF-8"},
        check=False,
    )
    said = (ended.stdout + ended.stderr).decode("utf-8")
    assert ended.returncode == 0, said
    return said


def _words(line: str) -> list[str]:
    """Read a command line as systemd shows it: quoted where needed, with the escapes of C."""
    return [_unescaped(quoted) if bare == "" else bare for quoted, bare in _WORD.findall(line)]


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code, 8)) if len(code) == 3 else _LETTERS.get(code, code)

    return _ESCAPE.sub(one, text)
