"""The command line. Imports stay inside the commands, so that `--help` is quick."""

from tuning.cli.app import main

__all__ = ["main"]
