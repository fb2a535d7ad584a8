"""Make the generated pages of docs/, with `make docs`. A test fails when they are stale."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.telemetry import Exporter
from harness.telemetry.catalog import METRICS
from harness.telemetry.exposition import Exposition
from harness.telemetry.nightly_exporter import Night, NightlyExporter
from tuning.cli.app import app

DOCS = Path(__file__).parent.parent / "docs"
NOTE = "<!-- Made by `make docs`; change the code instead. -->\n\n"


def pages() -> dict[str, str]:
    """Return the text of each generated page by its file name."""
    return {"flags.md": NOTE + flags_page(), "metrics.md": NOTE + metrics_page()}


def flags_page() -> str:
    """Describe every command and flag, from the commands themselves."""
    return app.generate_docs(output_format="markdown", recursive=True, usage_name="hicache-tune").rstrip() + "\n"


def metrics_page() -> str:
    """Describe the engine's metrics that are read, and our own that are exported."""
    return "\n".join(_metrics_lines()) + "\n"


def _metrics_lines() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "## Read from the engine"
    yield ""
    yield "Counters are differences over the load of one trial, of one engine process."
    yield ""
    yield "| name | kind | SGLang | ranks |"
    yield "|---|---|---|---|"
    for spec in METRICS:
        yield f"| `{spec.name}` | {spec.kind.value} | {', '.join(spec.versions)} | {spec.rank_rule.value} |"
    yield ""
    yield "## Exported during a search (`--metrics-port`)"
    yield ""
    yield "| name | kind | what it is |"
    yield "|---|---|---|"
    yield from _families(Exporter("study"))
    yield ""
    yield "## Exported by a nightly job (a file for node_exporter)"
    yield ""
    yield "| name | kind | what it is |"
    yield "|---|---|---|"
    yield from _families(NightlyExporter("job", Night("no data", 0.0, 0.0, {})))


def _families(exposition: Exposition) -> Iterator[str]:
    for family in sorted(exposition.collect(), key=lambda family: family.name):
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        yield f"| `{family.name}{suffix}` | {family.type} | {family.documentation} |"


def write() -> None:
    """Write the pages. Not run as a module: cyclopts would take `-m scripts.docs` for a part of each usage line."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
