"""How a command names a server that runs already: its address, and its key by the name of a variable."""

from __future__ import annotations

import os

from scenarios.errors import ConfigError


def checked_url(url: str) -> str:
    """Return the address without a slash at its end; raise ConfigError when it is none."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url}: begin it with http:// or https://")
    return url.rstrip("/")


def api_key_headers(api_key_env: str | None) -> dict[str, str]:
    """Return the header with the key that the variable holds; the key itself is in no argument and no result."""
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env)
    if not key:
        raise ConfigError(f"--api-key-env {api_key_env}: that variable holds no key; set it")
    return {"Authorization": f"Bearer {key}"}
