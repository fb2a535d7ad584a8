"""What of a setting SGLang can change while it runs, so that a relaunch would not be needed: nothing of what counts.

Read in the sources of 0.5.15 and 0.5.23:

- `/set_internal_state` takes a short list of scheduler parameters (`pp_max_micro_batch_size` and some of speculative
  decoding), and no flag of HiCache, of memory or of the page size.
- `PUT /hicache/storage-backend` changes the write policy and the prefetch policy, but only together with attaching a
  storage tier, on an idle server that was started with `--admin-api-key`. Without such a tier there is no way, and
  with one its reads and writes would be measured with the policy. What the pools hold from under the old policy
  stays unless flushed, and 0.5.23 refuses the change from write_back to write_through for that reason.
- The sizes of both pools, the memory layout, the io backend, `--mem-fraction-static`, `--page-size` and every other
  flag are read once, at the start.

A launch also is what proves a setting: that it starts, fits and leaves headroom. So every trial launches an engine.
"""

from __future__ import annotations

from harness.engine.setting import Setting

CHANGEABLE: frozenset[str] = frozenset()
"""Engine flags that a running SGLang can be given another value of, with nothing else changed by it."""


def can_change_live(before: Setting, after: Setting) -> bool:
    """Whether an engine that runs `before` can be made to run `after` without a relaunch; both are canonical."""
    old, new = dict(before.values()), dict(after.values())
    different = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return different <= CHANGEABLE
