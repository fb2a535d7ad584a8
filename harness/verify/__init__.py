"""Proves on a running engine whether HiCache is on and pays: see `harness.verify.procedure`."""
