"""The files between the harness and the load process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.errors import LoadError
from harness.load.job import ApiName, LoadJob, LoadOutcome, Timeouts


def job(**changes: Any) -> LoadJob:
    """Make a job, with changes."""
    return LoadJob(
        **{
            "base_url": "http://127.0.0.1:1",
            "api": ApiName.CHAT,
            "model": "m",
            "plan_path": Path("p"),
            "out_dir": Path("o"),
            "limit_s": 1.0,
            **changes,
        }
    )


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    """What is written is what is read, and nothing else is left in the folder."""
    written = job(timeouts=Timeouts(idle_s=3), headers={"X-Session": "1"})
    (tmp_path / "job.json").write_text(written.model_dump_json())
    assert LoadJob.read(tmp_path / "job.json") == written
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "127.0.0.1:1"}, "no http"),
        ({"headers": {"authorization": "Bearer k"}}, "api_key_env"),
        ({"headers": {"X": "a\r\nY: b"}}, "control character"),
        ({"limit_s": 0}, "greater than 0"),
        ({"colour": 1}, "Extra inputs"),
    ],
)
def test_a_wrong_job_is_refused(changes: dict[str, Any], message: str) -> None:
    """Keys in files, headers that smuggle lines, and unknown fields do not pass."""
    with pytest.raises(ValidationError, match=message):
        job(**changes)


@pytest.mark.parametrize("text", ["", "{", "{}", '{"schema_version": 1}'])
def test_a_damaged_outcome_is_a_load_error(tmp_path: Path, text: str) -> None:
    """A file that is no outcome says which file it is."""
    (tmp_path / "load.json").write_text(text, encoding="utf-8")
    with pytest.raises(LoadError, match=r"load\.json"):
        LoadOutcome.read(tmp_path / "load.json")
