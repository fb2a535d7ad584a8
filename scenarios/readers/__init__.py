"""Readers of recorded traffic: one file a format, one way to open them all."""

from scenarios.readers.opening import FORMATS, open_trace

__all__ = ["FORMATS", "open_trace"]
