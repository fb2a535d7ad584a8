"""How a command names a server that runs already: its address, and its key by the name of a variable."""

from __future__ import annotations

from harness.engine.api_key import api_key_headers
from scenarios.errors import ConfigError

__all__ = ["api_key_headers", "checked_url"]


def checked_url(url: str) -> str:
    """Return the address without a slash at its end; raise ConfigError when it is none."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url}: begin it with http:// or https://")
    return url.rstrip("/")
