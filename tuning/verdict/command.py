"""The command by which a user launches a setting."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.engine.spec import PUBLIC_PORT
from harness.store import TrialRecord


def launch_command(record: TrialRecord) -> str | None:
    """Return the command by which a user runs the record's setting; None when nothing was launched for it."""
    words = record.command or _on_the_public_port(record.argv)
    variables = [f"{name}={value}" for name, value in record.env.items()]
    return shlex.join(["env", *variables, *words] if variables else words) if words else None


def _on_the_public_port(argv: Sequence[str]) -> list[str]:
    """Return the launch of a record of before the user's command was kept, with the port for users."""
    words = list(argv)
    if "--port" in words:
        words[words.index("--port") + 1] = str(PUBLIC_PORT)
    return words
