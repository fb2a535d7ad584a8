"""Plays the sessions of a plan in a process of its own and records every request: see `harness.load.runner`."""
