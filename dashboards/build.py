"""The committed JSON of every dashboard, with `make dashboards`. A test fails when it is stale."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import compare, engine, nightly, search
from dashboards.files import JSON_FOLDER


def built() -> dict[str, str]:
    """Build every dashboard and return its JSON by file name."""
    boards = [module.dashboard() for module in (search, engine, nightly, compare)]
    return {f"{board.uid}.json": _text(board) for board in boards}


def write(folder: Path = JSON_FOLDER) -> None:
    """Write the JSON of every dashboard."""
    for name, text in built().items():
        (folder / name).write_text(text, encoding="utf-8")


def _text(board: object) -> str:
    # The SDK leaves an id out that is not set; Grafana's import wants it to be there, and null.
    plain = json.loads(json.dumps(board, cls=JSONEncoder))
    return json.dumps({"id": None, **plain}, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    write()
