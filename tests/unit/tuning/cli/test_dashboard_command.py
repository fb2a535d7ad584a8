"""`hicache-tune dashboard`: what it writes, what it finds wrong, and what it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards.files import EXPORTED, FOLDER, dashboard_files
from tests.support.cases import case_folder
from tests.support.console import Run

DOCKER = """#!/bin/sh
echo "$HICACHE_TUNE_RESULTS|$*" >> "${0%/*}/calls"
case "$2" in version) exit {compose};; *) exit {up};; esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is all of PATH, in which a docker may be put."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put(folder: Path, *, compose: int = 0, up: int = 0) -> None:
    """Put a docker there that notes how it is called; `compose` and `up` are its exit codes."""
    path = folder / "docker"
    path.write_text(DOCKER.replace("{compose}", str(compose)).replace("{up}", str(up)), encoding="utf-8")
    path.chmod(0o755)


def calls(folder: Path) -> list[str]:
    """Return how docker was called, but for the question whether it has Compose."""
    lines = (folder / "calls").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.endswith("|compose version")]


def test_export_writes_all_that_is_needed(run: Run) -> None:
    """The same files as ours, to be changed at will."""
    said = run("dashboard", "export", "--to", "mine")
    assert said.code == 0
    shipped = {path.relative_to(FOLDER) for name in EXPORTED for path in [FOLDER / name, *(FOLDER / name).rglob("*")]}
    assert {path.relative_to("mine") for path in Path("mine").rglob("*")} == shipped
    assert len(list(Path("mine/grafana/json").glob("*.json"))) == len(dashboard_files())


def test_export_overwrites_nothing(run: Run) -> None:
    """A folder that holds something is left as it is."""
    Path("mine").mkdir()
    Path("mine/notes").write_text("kept", encoding="utf-8")
    said = run("dashboard", "export", "--to", "mine")
    assert said.code == 1
    assert "mine is there already, and may hold changes of yours; name another folder" in said.err
    assert [path.name for path in Path("mine").iterdir()] == ["notes"]


def test_check_finds_nothing_in_our_own(run: Run) -> None:
    """Without files it looks at those that are shipped."""
    said = run("dashboard", "check")
    assert (said.code, said.out) == (0, "")
    assert f"{len(dashboard_files())} dashboards, no fault found" in said.err


def test_check_names_each_fault(run: Run) -> None:
    """One line a fault on stdout, with the file."""
    path = case_folder("63") / "dashboard.json"
    said = run("dashboard", "check", str(path))
    assert said.code == 1
    assert f"{path}: __inputs present\n" in said.out
    assert "panel 1 uses ${DS_PROMETHEUS} but no templating variable of type datasource with that name" in said.out


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "no readable dashboard"),
        (json.dumps({"dashboard": {}}), "no dashboard, it has no panels"),
        ("[]", "no da"),
    ],
)
def test_what_is_no_dashboard_is_named(run: Run, text: str, fault: str) -> None:
    """One sentence with the file and what to do."""
    Path("x.json").write_text(text, encoding="utf-8")
    said = run("dashboard", "check", "x.json")
    assert said.code == 1
    assert f"x.json: {fault}" in said.err
    assert "export it from Grafana as JSON" in said.err


def test_up_without_docker_says_what_to_run(run: Run, docker: Path) -> None:
    """The commands are complete; nothing is made."""
    said = run("dashboard", "up", "--folder", "mine", "--results", "found")
    assert said.code == 1
    at, results = Path("mine").absolute(), Path("found").absolute()
    for command in (
        f"hicache-tune dashboard export --to {at}",
        f"prometheus --config.file={at}/prometheus/prometheus.yml",
        f"HICACHE_TUNE_DASHBOARDS={at}/grafana/json",
        f"GF_PATHS_PROVISIONING={at}/grafana/provisioning",
        f"node_exporter --web.listen-address=127.0.0.1:9100 '--collector.textfile.directory={results}/*'",
    ):
        assert command in said.err
    assert not Path("mine").exists()


def test_a_docker_without_compose_is_none(run: Run, docker: Path) -> None:
    """Compose is a plugin of its own; without it `docker compose up` would say `unknown flag`."""
    put(docker, compose=125)
    said = run("dashboard", "up", "--folder", "mine")
    assert said.code == 1
    assert "There is no `docker compose` here" in said.err
    assert calls(docker) == []


def test_up_shows_and_runs_compose(run: Run, docker: Path) -> None:
    """The export is made first, and the results' folder is told."""
    put(docker)
    said = run("dashboard", "up", "--folder", "mine", "--results", "found")
    assert said.code == 0
    assert calls(docker) == [f"{Path('found').absolute()}|compose --file mine/compose.yaml up --detach"]
    assert "compose --file mine/compose.yaml up --detach" in said.err
    assert Path("mine/compose.yaml").exists()
    assert Path("found").is_dir()


def test_up_keeps_what_was_changed(run: Run, docker: Path) -> None:
    """A folder that was exported before is used as it is."""
    put(docker)
    run("dashboard", "export", "--to", "mine")
    Path("mine/compose.yaml").write_text("services: {}", encoding="utf-8")
    assert run("dashboard", "up", "--folder", "mine").code == 0
    assert Path("mine/compose.yaml").read_text(encoding="utf-8") == "services: {}"


def test_dry_run_starts_nothing(run: Run, docker: Path) -> None:
    """It shows the command alone."""
    put(docker)
    said = run("dashboard", "up", "--folder", "mine", "--dry-run")
    assert (said.code, calls(docker)) == (0, [])
    assert "up --detach" in said.err
    assert not Path("mine").exists()


def test_a_compose_that_fails_is_named(run: Run, docker: Path) -> None:
    """Its exit code is said; why is what it printed itself."""
    put(docker, up=14)
    said = run("dashboard", "up", "--folder", "mine")
    assert said.code == 1
    assert "docker compose ended with 14; what it printed above says why" in said.err
