"""Keep what a study has measured as evidence: `python -m scripts.gpu.evidence results/STUDY docs/evidence/FOLDER`.

Records, requests and telemetry of every trial that measured something, the question and the answer. Paths below the
home folder are shortened, and the host's name is left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from harness.files import write_atomically
from harness.store import REQUESTS_FILE, SAMPLES_FILE, TRIAL_FILE, Outcome
from tuning.config import STUDY_FILE

RESULT_FILE = "result.json"
HOST = "rented"


def main() -> None:
    """Keep the study that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--home", default="/root", help="home folder of the host that measured")
    options = parser.parse_args()
    keep(options.study, options.folder, home=options.home)


def keep(study: Path, folder: Path, *, home: str) -> None:
    """Copy what matters of `study` into `folder`; a trial that was cut off is no evidence."""
    for name in (STUDY_FILE, RESULT_FILE):
        if (study / name).exists():
            _write(folder / name, _read(study / name), home)
    for trial in sorted((study / "trials").iterdir()):
        record = _read(trial / TRIAL_FILE) if (trial / TRIAL_FILE).exists() else {}
        if record.get("outcome", Outcome.INTERRUPTED) == Outcome.INTERRUPTED:
            continue
        _write(folder / "trials" / f"{trial.name}.json", record, home)
        for file, kind in ((REQUESTS_FILE, "requests"), (SAMPLES_FILE, "samples")):
            if (trial / file).exists():
                (folder / kind).mkdir(exist_ok=True)
                _pack(trial / file, folder / kind / f"{trial.name}.parquet")


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _pack(source: Path, target: Path) -> None:
    """Write the same rows in fewer bytes: evidence is written once and travels with every clone."""
    pd.read_parquet(source).to_parquet(target, index=False, compression="zstd", compression_level=19)


def _write(path: Path, content: dict[str, Any], home: str) -> None:
    """Write `content` as it was, with `~` for the home folder and without the host's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    environment = content.get("environment")
    if isinstance(environment, dict):
        content = {**content, "environment": {**environment, "host": HOST}}
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False).replace(f"{home}/", "~/") + "\n")


if __name__ == "__main__":
    main()
