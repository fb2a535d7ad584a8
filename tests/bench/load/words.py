"""The words of a request; a module of its own, because clients in other environments import nothing else."""

from __future__ import annotations


def prompt(key: int) -> str:
    """Write the words of a request, with the key by which both sides know it."""
    return f"request-{key:06d}: " + "please tell me more about the sea " * 10
