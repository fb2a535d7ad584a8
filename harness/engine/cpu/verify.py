"""Import what a launch imports and print the versions as JSON; run by the engine's Python, with the shim."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys

LAUNCHED = (
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.mem_cache.hiradix_cache",
    "sglang.srt.models.qwen2",
    "prometheus_client",
)


def main() -> None:
    """Print `{"sglang": ..., "torch": ...}`; raise when something that a launch needs cannot be imported."""
    for name in LAUNCHED:
        importlib.import_module(name)
    if not hasattr(sys.modules["sglang.srt.mem_cache.memory_pool_host"], "transfer_kv_all_layer_lf_pf"):
        raise SystemExit("the CPU shim did not take effect")
    versions = {name: importlib.metadata.version(name) for name in ("sglang", "torch")}
    sys.stdout.write(json.dumps(versions) + "\n")


if __name__ == "__main__":
    main()
