"""Runs one trial against a live engine: see `harness.trial`. Knows nothing of Optuna."""
