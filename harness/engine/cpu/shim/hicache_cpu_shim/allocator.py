"""The two Triton kernels of the paged KV allocator, in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def patch(paged: Any) -> None:
    """Replace the kernels of `sglang.srt.mem_cache.allocator.paged`."""

    def extend(
        prefix_lens: torch.Tensor,
        seq_lens: torch.Tensor,
        last_loc: torch.Tensor,
        free_pages: torch.Tensor,
        out: torch.Tensor,
        _bs_upper: int,
        page_size: int,
    ) -> None:
        new_pages = _pages(seq_lens, page_size) - _pages(prefix_lens, page_size)
        if int(new_pages.sum()) <= len(free_pages):  # else the caller sees the shortage and gives up on `out`
            paged.alloc_extend_naive(prefix_lens, seq_lens, last_loc, free_pages, out, page_size, out.device)

    paged.alloc_extend_kernel = _Launch(extend)
    paged.alloc_decode_kernel = _Launch(decode)


def decode(
    seq_lens: torch.Tensor,
    last_loc: torch.Tensor,
    free_pages: torch.Tensor,
    out: torch.Tensor,
    _bs_upper: int,
    page_size: int,
) -> None:
    """Write the slot of each request's next token: the one after its last, unless the token opens a page."""
    opens_page = (seq_lens - 1) % page_size == 0
    pages = int(opens_page.sum())
    out.copy_(last_loc + 1)
    if pages <= len(free_pages):  # else the caller sees the shortage and gives up on `out`
        out[opens_page] = free_pages[:pages] * page_size


def _pages(tokens: torch.Tensor, page_size: int) -> torch.Tensor:
    return (tokens + page_size - 1) // page_size


class _Launch:
    """A plain function that is called the way Triton kernels are: `kernel[grid](...)`."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __getitem__(self, _grid: object) -> Callable[..., None]:
        return self._function
