"""Shapes of real models, as their config.json has them."""

from __future__ import annotations

import json
from typing import Any

from tests.support.recordings import DATA

H200_SHAPE = {"vocab_size": 8192}
"""What the model of the H200 recordings has other than Qwen2-7B: a small vocabulary."""


def model_config(name: str, **changes: Any) -> dict[str, Any]:
    """Return the config of a model in tests/data/models; a key changed to None is left out."""
    config = json.loads((DATA / "models" / f"{name}.json").read_text(encoding="utf-8"))
    changed = {**config, **changes}
    return {key: value for key, value in changed.items() if value is not None or key not in changes}
