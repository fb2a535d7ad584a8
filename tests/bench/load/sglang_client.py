"""Starts SGLang's own benchmark, unchanged, and keeps the absolute times that its output file leaves out.

Runs in the engine's environment: `python sglang_client.py SEEN.json ARGS...`; times of `perf_counter` are those of
CLOCK_MONOTONIC on Linux.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

if find_spec("datasets") is None:  # the CPU engine goes without; one data set that we don't use imports it
    sys.modules["datasets"] = ModuleType("datasets")
    sys.modules["datasets"].load_dataset = None  # type: ignore[attr-defined]

from sglang.benchmark import serving


def main(out: Path) -> None:
    """Run the benchmark and write [key, sent, first token, chunks] of each request that it calls a success."""
    calculate = serving.calculate_metrics

    def keep(*args, **kwargs):  # type: ignore[no-untyped-def]  # whatever SGLang passes on
        seen = [
            (
                int(o.generated_text[8:14]),
                round(o.start_time * 1e9),
                round((o.start_time + o.ttft) * 1e9),
                1 + len(o.itl),
            )
            for o in kwargs["outputs"]
            if o.success and o.generated_text.startswith("request-")
        ]
        out.write_text(json.dumps(seen), encoding="utf-8")
        return calculate(*args, **kwargs)

    serving.calculate_metrics = keep
    serving.cli_main()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
