"""How a command names a server that runs already."""

from __future__ import annotations

from scenarios.errors import ConfigError


def checked_url(url: str) -> str:
    """Return the address without a slash at its end; raise ConfigError when it is none."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url}: begin it with http:// or https://")
    return url.rstrip("/")
