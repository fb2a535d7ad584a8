"""Become the command given as arguments, tied to the life of the process that started it.

`python -I guard.py PARENT_PID command...`: the kernel sends SIGTERM when the parent dies, so that a
harness that was killed leaves no engine behind. An own small program, because code between fork and exec is
unsafe in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask for SIGTERM at the parent's death, then replace this process by the command."""
    parent_pid, *command = arguments
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent_pid):  # the parent died before the request took effect
        sys.exit("the harness is gone; nothing was launched")
    os.execvp(command[0], command)  # noqa: S606 - an argv list without a shell is the point


if __name__ == "__main__":
    main(sys.argv[1:])
