"""The files between the harness and the load process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.errors import LoadError
from harness.load.job import ApiName, ClientHealth, LoadJob, LoadOutcome, Timeouts


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
    written = job(timeouts=Timeouts(idle_s=3), headers={"X-Fixed": "1"}, session_header="X-SMG-Routing-Key")
    (tmp_path / "job.json").write_text(written.model_dump_json())
    assert LoadJob.read(tmp_path / "job.json") == written
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "127.0.0.1:1"}, "no http"),
        ({"headers": {"authorization": "Bearer k"}}, "api_key_env"),
        ({"headers": {"X": "a\r\nY: b"}}, "control character"),
        ({"headers": {"Content-Length": "3"}}, "belongs to the request itself"),
        ({"headers": {"X Y": "1"}}, "no name of a header"),
        ({"session_header": "Authorization"}, "api_key_env"),
        ({"session_header": "Host"}, "belongs to the request itself"),
        ({"session_header": "X-Key: 1\r\nY"}, "no name of a header"),
        ({"session_header": ""}, "no name of a header"),
        ({"processes": 0}, "greater than or equal to 1"),
        ({"slo_ttft_s": 0}, "greater than 0"),
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


def test_the_worst_of_several_processes_is_the_worst_of_each_figure() -> None:
    """One process may have had too little CPU and another a late loop; what is unknown everywhere stays so."""
    busy = ClientHealth(cpu_fraction=0.95, lag_p99_ms=1, lag_max_ms=2, gc_pause_ms=3, late_max_ms=7)
    late = ClientHealth(cpu_fraction=0.20, lag_p99_ms=80, lag_max_ms=90, gc_pause_ms=0)
    assert ClientHealth.worst([busy, late]) == ClientHealth(
        cpu_fraction=0.95, lag_p99_ms=80, lag_max_ms=90, gc_pause_ms=3, late_p99_ms=None, late_max_ms=7
    )
    assert ClientHealth.worst([late]) == late
