"""Put the CPU shim into every process of the engine.

Python imports `sitecustomize` at the start of each process whose PYTHONPATH has this folder, so the scheduler
and the detokenizer, which SGLang spawns, get the shim as well. Nothing happens unless it is asked for.
"""

import importlib
import os

if os.environ.get("HICACHE_TUNE_CPU_SHIM") == "1":
    importlib.import_module("hicache_cpu_shim").install()
