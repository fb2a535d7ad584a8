"""Says what a running engine suffers from, by watching it and nothing else: see `harness.diagnose.causes`."""
