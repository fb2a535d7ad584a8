"""A setting: one point of the search space, in the engine's own words.

SGLang silently rewrites some combinations of flags. `canonical` applies the same rewrites first
(`harness.engine.rewrites`), so that two flag sets which give the same server are one setting.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from harness.engine.rewrites import RATIO, canonical_transfer, rewritten
from harness.engine.surroundings import FlagValue, Surroundings
from scenarios.strict import StrictModel

WritePolicy = Literal["write_through", "write_through_selective", "write_back"]
IoBackend = Literal["kernel", "direct"]
MemLayout = Literal["layer_first", "page_first", "page_first_direct", "page_head"]

DEFAULT_RATIO = RATIO["cache"]
PLAIN = Surroundings()

__all__ = ["DEFAULT_RATIO", "FlagValue", "IoBackend", "MemLayout", "Setting", "WritePolicy", "canonical_transfer"]


class Setting(StrictModel):
    """The flags that a search varies; None leaves a flag to SGLang's own default.

    `hicache_size` is SGLang's unit: decimal gigabytes (1e9 bytes) for each rank. `extra` holds further engine
    flags by name without dashes in front.
    """

    hicache: bool = False
    hicache_ratio: float | None = Field(default=None, gt=0)
    hicache_size: int | None = Field(default=None, gt=0)
    hicache_write_policy: WritePolicy | None = None
    hicache_io_backend: IoBackend | None = None
    hicache_mem_layout: MemLayout | None = None
    mem_fraction_static: float | None = Field(default=None, gt=0, lt=1)
    page_size: int | None = Field(default=None, gt=0)
    extra: dict[str, FlagValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _host_pool_makes_sense(self) -> Self:
        if self.hicache_size is not None and self.hicache_ratio is not None:
            raise ValueError(
                "hicache_size and hicache_ratio are both set; SGLang would ignore the ratio, so keep one of them"
            )
        if self.hicache_ratio is not None and self.hicache_ratio < 1:
            raise ValueError(
                f"hicache_ratio is {self.hicache_ratio:g}; a host pool smaller than the device pool holds nothing that "
                "the device does not, so give 1 or more"
            )
        return self

    def canonical(self, around: Surroundings = PLAIN) -> Setting:
        """Return the setting that SGLang would really run `around` what is the same for all settings.

        Equal servers give equal settings. It is stable: the canonical form of a canonical setting is itself.
        """
        return rewritten(self, around)

    def flags(self) -> Iterator[str]:
        """Yield the engine's command-line flags of this setting."""
        for name, value in self.values():
            if value is True:
                yield f"--{name}"
            elif value is not False:
                yield from (f"--{name}", str(value))

    def values(self) -> Iterator[tuple[str, FlagValue]]:
        """Yield (engine flag without dashes, value) for all that is not left to SGLang."""
        if self.hicache:
            yield "enable-hierarchical-cache", True
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name not in ("hicache", "extra") and value is not None:
                yield name.replace("_", "-"), value
        yield from sorted(self.extra.items())

    @property
    def key(self) -> str:
        """Identify the canonical setting by 12 hexadecimal digits: equal flags give equal keys."""
        text = json.dumps(list(self.canonical().flags()))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """Describe the setting in a few words for tables."""
        words = []
        if self.hicache:
            size = f"{self.hicache_size} GB" if self.hicache_size else f"ratio {self.hicache_ratio or DEFAULT_RATIO:g}"
            words.append(f"HiCache {size}")
            if self.hicache_write_policy:
                words.append(self.hicache_write_policy)
            if self.hicache_io_backend or self.hicache_mem_layout:
                words.append("/".join(canonical_transfer(self.hicache_io_backend, self.hicache_mem_layout)))
        else:
            words.append("HiCache off")
        if self.mem_fraction_static is not None:
            words.append(f"fraction {self.mem_fraction_static:g}")
        if self.page_size is not None:
            words.append(f"page {self.page_size}")
        words += [f"{name} {value}" for name, value in sorted(self.extra.items())]
        return ", ".join(words)
