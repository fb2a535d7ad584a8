"""What of a setting SGLang can change while it runs, so that no relaunch is needed: three flags of its scheduler.

Read in the sources of 0.5.15 (`scheduler.py:3788`) and 0.5.23 (`scheduler_components/internal_state.py`), and of
0.5.15 tried on the real engine:

- `/set_internal_state` takes `pp_max_micro_batch_size`, which bounds the running requests also without pipeline
  stages, and two thresholds of speculative decoding. It knows no flag of HiCache, of memory or of the page size.
- `PUT /hicache/storage-backend` changes the write policy and the prefetch policy, but only together with attaching a
  storage tier, on an idle server that was started with `--admin-api-key`, and a key must not be an argument. Without
  such a tier there is no way, and with one its reads and writes would be measured with the policy. What the pools hold
  from under the old policy stays unless flushed, and 0.5.23 refuses write_back to write_through for that reason.
- The sizes of both pools, the memory layout, the io backend, `--mem-fraction-static`, `--page-size` and every other
  flag are read once, at the start.

A launch also is what proves a setting: that it starts, fits and leaves headroom. What these three flags change is
neither, and two loads of one setting differ in nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.engine.setting import Setting

CHANGEABLE: Mapping[str, type[int | float]] = {
    "pp-max-micro-batch-size": int,
    "speculative-accept-threshold-single": float,
    "speculative-accept-threshold-acc": float,
}
"""Engine flags that a running SGLang can be given another value of, with nothing else changed by it."""


def live_changes(before: Setting, after: Setting) -> dict[str, int | float] | None:
    """Return what an engine that runs `before` must be given to run `after`, by flag; None when only a launch can.

    Both are canonical. Nothing is needed between equal settings. A value that `after` leaves to SGLang is one that
    only a launch finds.
    """
    old, new = dict(before.values()), dict(after.values())
    different = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if not different <= CHANGEABLE.keys() & new.keys():
        return None
    return {name: CHANGEABLE[name](new[name]) for name in sorted(different)}


def as_running(server_info: Mapping[str, Any]) -> dict[str, Any]:
    """Return /server_info with what the schedulers run now, in place of what they were launched with.

    What they do not agree on is None, which is equal to no value.
    """
    states = [state for state in server_info.get("internal_states") or () if isinstance(state, Mapping)]
    told = dict(server_info)
    for key in (name.replace("-", "_") for name in CHANGEABLE):
        if states and all(key in state for state in states):
            values = {state[key] for state in states}
            told[key] = values.pop() if len(values) == 1 else None
    return told
