"""The key of an engine that asks for one: named by an environment variable, so that it is in no argument or result."""

from __future__ import annotations

import os

from harness.errors import ConfigError


def api_key_headers(api_key_env: str | None) -> dict[str, str]:
    """Return the header with the key that the variable holds; raise ConfigError when it holds none."""
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env)
    if not key:
        raise ConfigError(f"--api-key-env {api_key_env}: that variable holds no key; set it")
    return {"Authorization": f"Bearer {key}"}
