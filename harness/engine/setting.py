"""A setting: one point of the search space, in the engine's own words.

SGLang silently rewrites some combinations of flags. `canonical` applies the same rewrites first, so that two
flag sets which give the same server are one setting. Rules: SGLang 0.5.15 `server_args.py:5381-5433`,
0.5.23 `arg_groups/hicache_hook.py:176-256`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from scenarios.strict import StrictModel

WritePolicy = Literal["write_through", "write_through_selective", "write_back"]
IoBackend = Literal["kernel", "direct"]
MemLayout = Literal["layer_first", "page_first", "page_first_direct", "page_head"]
FlagValue = bool | int | float | str

DEFAULT_RATIO = 2.0


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

    def canonical(self) -> Self:
        """Return the setting that SGLang would really run: equal servers give equal settings."""
        if not self.hicache:
            unused = {name: None for name in type(self).model_fields if name.startswith("hicache_")}
            extra = {name: value for name, value in self.extra.items() if not name.startswith("hicache-")}
            return self.model_copy(update={**unused, "extra": extra})
        ratio = self.hicache_ratio
        if ratio is None and self.hicache_size is None:
            ratio = DEFAULT_RATIO
        io_backend, layout = canonical_transfer(self.hicache_io_backend, self.hicache_mem_layout)
        return self.model_copy(
            update={
                "hicache_ratio": ratio,
                "hicache_write_policy": self.hicache_write_policy or "write_through",
                "hicache_io_backend": io_backend,
                "hicache_mem_layout": layout,
            }
        )

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


def canonical_transfer(io_backend: IoBackend | None, layout: MemLayout | None) -> tuple[IoBackend, MemLayout]:
    """Return the pair of io backend and memory layout that SGLang would really use."""
    io_backend, layout = io_backend or "kernel", layout or "page_first"
    if layout == "page_first_direct" and io_backend == "kernel":
        return "direct", "page_first_direct"
    if layout == "page_first" and io_backend == "direct":
        return "direct", "page_first_direct"
    return io_backend, layout
