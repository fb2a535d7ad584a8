"""Grafana dashboards and Prometheus rules, as code; the metrics they show are in docs/metrics.md."""
