"""The units of a nightly job: what is to run them takes them, and they run what was asked for."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dashboards.unit_files import UNITS_FOLDER, write_units
from harness.errors import ConfigError
from tests.support.systemd import commands, complaints, exposure, next_elapse

NAMES = ["cronjob.yaml", "github-workflow.yml", "hicache-tune-nightly.service", "hicache-tune-nightly.timer"]
KUBERNETES = ["1.27", "1.37"]
"""The oldest with `timeZone` for good, and the latest that there are schemas of."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a job's folder and an environment whose names need quotes everywhere."""
    home = tmp_path / "50% of $HOME;"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "hicache-tune"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > said.txt\n')
    program.chmod(0o755)
    return home


@pytest.fixture
def units(home: Path) -> Path:
    """Write the units."""
    folder = home / "units"
    written = write_units(folder, config=home / "nightly.toml", python=str(home / "bin" / "python"))
    assert written == [folder / name for name in NAMES]
    return folder


def test_all_are_shipped(units: Path) -> None:
    """What is written are the packaged files, with every placeholder filled in."""
    assert sorted(path.name for path in UNITS_FOLDER.iterdir()) == NAMES
    for path in units.iterdir():
        assert not re.search("@[A-Z]+@", path.read_text(encoding="utf-8"))


def test_files_of_the_user_are_left(home: Path, units: Path) -> None:
    """Units are edited; they are not written over, not even in part."""
    (units / NAMES[0]).unlink()
    (units / NAMES[-1]).write_text("mine")
    with pytest.raises(ConfigError, match="may hold changes of yours"):
        write_units(units, config=home / "nightly.toml", python=sys.executable)
    assert not (units / NAMES[0]).exists()
    assert (units / NAMES[-1]).read_text() == "mine"


def test_paths_that_no_unit_can_hold(tmp_path: Path) -> None:
    """A line break in a path would be another setting."""
    with pytest.raises(ConfigError, match="without control characters"):
        write_units(tmp_path / "units", config=tmp_path / "a\nUser=root" / "n.toml", python=sys.executable)
    assert not (tmp_path / "units").exists()


def test_systemd_takes_service_and_timer(home: Path, units: Path) -> None:
    """systemd has nothing against them, and reads the command that was meant."""
    service, timer = units / "hicache-tune-nightly.service", units / "hicache-tune-nightly.timer"
    assert complaints(service, timer) == ""
    program, *arguments = commands(service)[-1]
    assert program == str(home / "bin" / "hicache-tune")
    assert arguments == ["nightly", "--config", str(home / "nightly.toml").replace("$", "$$")]


def test_the_timer_means_each_night(units: Path) -> None:
    """At two, by the machine's clock; a missed night is made up for."""
    text = (units / "hicache-tune-nightly.timer").read_text(encoding="utf-8")
    (calendar,) = re.findall("^OnCalendar=(.*)$", text, re.MULTILINE)
    assert re.search(r"Next elapse: \w+ [0-9-]+ 02:00:00", next_elapse(calendar))
    assert "\nPersistent=true\n" in text


def test_the_service_is_hardened(units: Path) -> None:
    """Systemd's own rating of what a service could do: 0 is nothing, 10 is everything."""
    assert exposure(units / "hicache-tune-nightly.service") < 5


@pytest.mark.parametrize("setting", ["PrivateDevices", "ProtectClock", "MemoryDenyWriteExecute", "DeviceAllow"])
def test_the_service_sees_gpus(setting: str, units: Path) -> None:
    """These would take the GPUs or the compiled kernels away."""
    text = (units / "hicache-tune-nightly.service").read_text(encoding="utf-8")
    assert not re.search(f"^{setting}=", text, re.MULTILINE)


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_the_cronjob(version: str, units: Path) -> None:
    """Every document is valid by the schemas of Kubernetes, which know no other keys."""
    documents = list(yaml.safe_load_all((units / "cronjob.yaml").read_text(encoding="utf-8")))
    assert [each["kind"] for each in documents] == ["PersistentVolumeClaim", "CronJob"]
    for each in documents:
        assert kubernetes_validate.validate(each, version, strict=True) == version


def test_the_cronjob_runs_one_night_at_a_time_and_once(units: Path) -> None:
    """A regression is not tried again, and what one part names another part has."""
    claim, job = list(yaml.safe_load_all((units / "cronjob.yaml").read_text(encoding="utf-8")))
    spec = job["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (spec["concurrencyPolicy"], spec["jobTemplate"]["spec"]["backoffLimit"]) == ("Forbid", 0)
    assert pod["restartPolicy"] == "Never"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes.keys() == {each["name"] for each in container["volumeMounts"]}
    assert volumes["work"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    paths = {each["mountPath"] for each in container["volumeMounts"]}
    assert {container["workingDir"], str(Path(container["command"][-1]).parent)} < paths


def test_github_takes_the_workflow(units: Path) -> None:
    """GitHub's own schema of workflows takes it."""
    path = str(units / "github-workflow.yml")
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", path]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def _steps(units: Path) -> list[dict[str, Any]]:
    workflow = yaml.safe_load((units / "github-workflow.yml").read_text(encoding="utf-8"))
    steps: list[dict[str, Any]] = workflow["jobs"]["night"]["steps"]
    return steps


def test_the_workflow_has_one_night_at_a_time(units: Path) -> None:
    """A night that runs is not cancelled by the next one, and what it left is kept however it ends."""
    workflow = yaml.safe_load((units / "github-workflow.yml").read_text(encoding="utf-8"))
    assert workflow["concurrency"] == {"group": "hicache-tune-gpu", "cancel-in-progress": False}
    assert "self-hosted" in workflow["jobs"]["night"]["runs-on"]
    assert [step.get("if") for step in _steps(units)] == [None, "always()", "always()", "always()"]


def test_the_scripts_of_the_workflow_run(home: Path, units: Path) -> None:
    """The night's command gets its words, and only what this night left is gathered."""
    results, temporary, summary = home / "results", home / "runner temp", home / "summary.md"
    for folder in (results / "chat-20261129", results / "chat-20261130", results / "chat", temporary):
        folder.mkdir(parents=True)
    (results / "chat-20261129" / "night.md").write_text("yesterday\n")
    variables = {"RUNNER_TEMP": str(temporary), "GITHUB_STEP_SUMMARY": str(summary), "PATH": "/usr/bin:/bin"}
    night, gather = (step["run"] for step in _steps(units)[:2])
    subprocess.run(["/bin/bash", "-e", "-c", night], env=variables, check=True)
    assert (home / "said.txt").read_text().split("\n")[:-1] == ["nightly", "--config", str(home / "nightly.toml")]
    (results / "chat-20261130" / "night.md").write_text("today\n")
    (results / "chat-20261130" / "junit.xml").write_text("<testsuites/>")
    begin_s = (temporary / "begin").stat().st_mtime
    os.utime(results / "chat-20261129" / "night.md", (begin_s - 1, begin_s - 1))
    os.utime(results / "chat-20261130" / "night.md", (begin_s + 1, begin_s + 1))
    subprocess.run(["/bin/bash", "-e", "-c", gather], env=variables, check=True)
    assert summary.read_text() == "today\n"
    kept = temporary / "night"
    assert {str(path.relative_to(kept)) for path in kept.rglob("*.*")} == {
        "chat-20261130/night.md",
        "chat-20261130/junit.xml",
    }


def test_commands_in_comments_name_the_jobs_file(home: Path, units: Path) -> None:
    """They can be pasted as they are."""
    text = (units / "cronjob.yaml").read_text(encoding="utf-8")
    (line,) = re.findall("^#   (kubectl create configmap .*)$", text, re.MULTILINE)
    assert shlex.split(line)[-1] == f"--from-file=nightly.toml={home / 'nightly.toml'}"
