"""Grafana dashboards, Prometheus rules and nightly jobs. Empty so far; the metrics they show are in docs/metrics.md."""
