"""A plan goes to disk and comes back; a damaged one says where."""

from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.plan import Phase, Plan, Session, Turn, read_plan, write_plan

PLAN = Plan(
    scenario="mine",
    seed=3,
    concurrency=2,
    sessions=(
        Session(
            session_id="counted-3-0",
            phase=Phase.COUNTED,
            turns=(Turn(0.0, 8, text="hello \u4f60\u597d \u2028", reply_text="ok"), Turn(0.25, 9, text="again")),
            start_s=1.5,
            system_text="be kind",
        ),
        Session(
            session_id="filler-3-0",
            phase=Phase.FILLER,
            turns=(Turn(0.0, 1, token_ids=(1, 2), reply_token_ids=(3,)),),
            system_token_ids=(7, 8),
        ),
    ),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write the plan."""
    write_plan(PLAN, tmp_path / "plan.jsonl")
    return tmp_path / "plan.jsonl"


def _message(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        read_plan(path)
    return str(caught.value)


def test_round_trip(path: Path) -> None:
    """What was written is read, with its types."""
    assert read_plan(path) == PLAN
    assert read_plan(path).sessions[0].phase is Phase.COUNTED
    assert PLAN.counted_turns == 2


def test_damaged_line(path: Path) -> None:
    """The message names the file and the line."""
    path.write_bytes(path.read_bytes().replace(b'"max_output_tokens":1', b'"max_output_tokens":"x"'))
    assert _message(path).startswith(f"{path}, line 3: no line of a plan (turns.0.max_output_tokens: ")


def test_cut_in_a_line(path: Path) -> None:
    """A write that was cut off in a line is found."""
    path.write_bytes(path.read_bytes()[:-9])
    assert f"{path}, line 3: no line of a plan (Invalid JSON" in _message(path)


def test_cut_between_lines(path: Path) -> None:
    """A write that was cut off between lines is found too."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert _message(path) == f"{path}: 1 of 2 sessions are left; make it again"


def test_other_version_and_empty_file(path: Path) -> None:
    """A head of another version, or none, is refused in line 1."""
    path.write_bytes(path.read_bytes().replace(b'"schema_version":1', b'"schema_version":2'))
    assert f"{path}, line 1: no line of a plan (schema_version: " in _message(path)
    path.write_bytes(b"")
    assert f"{path}, line 1: no line of a plan" in _message(path)


def test_missing_file(tmp_path: Path) -> None:
    """A plan that is not there is an error of its own words."""
    assert _message(tmp_path / "x") == (
        f"cannot read the plan {tmp_path / 'x'}: No such file or directory; make it again"
    )
