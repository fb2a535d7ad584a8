"""docs/scenarios.md: every file in it can be played, and every command in it runs as it stands."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from scenarios import PromptTokenizer, load_scenario, make_plan
from scenarios.sizing import sized
from tests.support.cases import DATA
from tests.support.console import Run

GUIDE = (Path(__file__).parents[4] / "docs" / "scenarios.md").read_text(encoding="utf-8")
FILES = {text.split("\n", 1)[0].removeprefix("# "): text for text in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)}
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()]
ARRIVALS = re.findall(r"^\| `(\{kind: .*?\})` \|", GUIDE, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, model: Path) -> Path:
    """Give the folder that the guide speaks of: its files, a trace, a chat log and a model."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copy(DATA / "traces" / "mooncake-conversation.jsonl.xz", tmp_path)
    shutil.copy(DATA / "scenarios" / "chats.jsonl", tmp_path)
    (tmp_path / "tiny").symlink_to(model)
    return tmp_path


def test_every_command_runs(run: Run, folder: Path) -> None:
    """In the order in which they stand, each ends well and says something."""
    for command in COMMANDS:
        said = run(*shlex.split(command)[1:])
        assert said.code == 0, (command, said.err)
        assert said.out or said.err


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_file_can_be_played(run: Run, folder: Path, model: Path, name: str) -> None:
    """It is complete and has counted sessions; what it is scaled by, or replays, is made first."""
    convert = next(command for command in COMMANDS if "scenario convert" in command)
    if name == "again.yaml":
        assert run(*shlex.split(convert)[1:]).code == 0
    tokenizer = PromptTokenizer.load(model)
    plan = make_plan(sized(load_scenario(folder / name), 6272, tokenizer), 1, tokenizer, "generate")
    assert plan.counted_turns > 0


@pytest.mark.parametrize("arrivals", ARRIVALS)
def test_every_kind_of_arrivals_is_one(folder: Path, arrivals: str) -> None:
    """Each line of the table can stand in a file."""
    path = folder / "other.yaml"
    path.write_text(re.sub(r"^arrivals: .*$", f"arrivals: {arrivals}", FILES["open.yaml"], flags=re.MULTILINE))
    assert load_scenario(path).arrivals is not None


def test_the_guide_has_what_is_tested() -> None:
    """A renamed fence or file would leave nothing to test."""
    assert len(FILES) >= 7
    assert len(COMMANDS) >= 10
    assert len(ARRIVALS) == 5
