"""A launch command as people read it."""

from __future__ import annotations

import re
import shlex

VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*=")


def one_flag_a_line(command: str) -> str:
    """Break a shell command before each flag and variable, so that it can be read and still be pasted as it is."""
    lines: list[list[str]] = [[]]
    after_variable = False
    for word in shlex.split(command):
        is_variable = VARIABLE.match(word) is not None
        if is_variable or after_variable or word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
        after_variable = is_variable
    return " \\\n  ".join(shlex.join(line) for line in lines if line)
