"""What, besides a setting, decides what SGLang makes of its flags: the version, the fixed flags, the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FlagValue = bool | int | float | str
Platform = Literal["cuda", "rocm", "cpu"]

LATE_0_5 = (0, 5, 23)
"""The newest version whose rules are known here; versions between this and 0.5.15 are taken as the older one."""


@dataclass(frozen=True)
class Surroundings:
    """The same for all settings of one study. The default is SGLang 0.5.15 on CUDA with nothing fixed."""

    version: tuple[int, ...] = (0, 5, 15)
    platform: Platform = "cuda"
    fixed: Mapping[str, FlagValue] = field(default_factory=dict)
    """Flags of every launch, by name without dashes."""
    defaults: Mapping[str, FlagValue] = field(default_factory=dict)
    """What the engine's parser takes for a flag that is left out."""
    architecture: str = ""
    """The model's class, such as `Qwen2ForCausalLM`; empty when its config is not at hand."""
    uses_mla: bool | None = None
    """Whether the model keeps a latent in place of heads (MLA); None when its config is not at hand."""

    @property
    def is_late(self) -> bool:
        """Whether the rules of 0.5.23 hold, and not those of 0.5.15."""
        return self.version >= LATE_0_5
