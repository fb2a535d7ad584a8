"""Where scenarios come from: those that are built in, by name, and YAML files, by path.

What a file refers to is read here too: the scenarios of a mix, recorded arrivals, the digest of a trace. So a loaded
scenario is complete, and a study that keeps it can be resumed wherever it lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from scenarios.errors import ScenarioError
from scenarios.model import Mix, Replay, Scenario, parse_scenario
from scenarios.strict import closest

BUILTIN = Path(__file__).with_name("builtin")


def list_scenarios() -> tuple[str, ...]:
    """List the names of the built-in scenarios, sorted."""
    return tuple(sorted(path.stem for path in BUILTIN.glob("*.yaml")))


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Load a built-in scenario by name, or a YAML file by path; raise ScenarioError."""
    return _load(name_or_path, Path(), ())


def _load(name_or_path: str | Path, folder: Path, readers: tuple[Path, ...]) -> Scenario:
    """Load a scenario whose path counts from `folder`; `readers` are the files that led here."""
    path = _find(name_or_path, folder)
    if path.resolve() in readers:
        raise ScenarioError(f"{readers[-1]}: its mix leads back to {path}; a mix cannot hold itself, so leave one out")
    data = _read(path)
    if isinstance(data.get("mix"), list):
        data["mix"] = [entry for given in data["mix"] for entry in _portions(given, path, readers)]
    if isinstance(data.get("arrivals"), dict):
        data["arrivals"] = _recorded_arrivals(data["arrivals"], path)
    scenario = parse_scenario(data, where=str(path))
    return _with_digest(scenario, path) if isinstance(scenario, Replay) else scenario


def _find(name_or_path: str | Path, folder: Path) -> Path:
    names = list_scenarios()
    if str(name_or_path) in names:
        return BUILTIN / f"{name_or_path}.yaml"
    path = folder / name_or_path
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path
    near = closest(str(name_or_path), names)
    hint = f", did you mean `{near}`?" if near else ""
    raise ScenarioError(
        f"no scenario is named `{name_or_path}`{hint} (built in: {', '.join(names)}; or give a YAML file)"
    )


def _portions(given: Any, path: Path, readers: tuple[Path, ...]) -> list[Any]:
    """Read the scenario of one entry of a mix; the entries of a mix inside a mix take its place."""
    if not isinstance(given, dict) or not isinstance(given.get("scenario"), str):
        return [given]  # the model says what is wrong with it
    scenario = _load(given["scenario"], path.parent, (*readers, path.resolve()))
    if isinstance(scenario, Replay):
        raise ScenarioError(
            f"{path}: the mix holds {given['scenario']}, a replay, whose sessions arrive as recorded; "
            "mix scenarios of users only"
        )
    if isinstance(scenario, Mix) and isinstance(given.get("share"), int | float):
        whole = sum(portion.share for portion in scenario.mix)
        return [
            {**given, "scenario": portion.scenario, "share": given["share"] * portion.share / whole}
            for portion in scenario.mix
        ]
    return [{**given, "scenario": scenario}]


def _recorded_arrivals(arrivals: dict[str, Any], path: Path) -> dict[str, Any]:
    """Put the times of a file in the place of its name."""
    if not isinstance(arrivals.get("file"), str) or "times_s" in arrivals:
        return arrivals
    file = path.parent / arrivals["file"]
    times = []
    for number, line in enumerate(_text(file, "the arrivals").splitlines(), start=1):
        try:
            times += [float(line)] if line.strip() else []
        except ValueError:
            raise ScenarioError(f"{file}, line {number}: `{line[:40]}` is no number of seconds; correct it") from None
    return {key: value for key, value in arrivals.items() if key != "file"} | {"times_s": times}


def _with_digest(scenario: Replay, path: Path) -> Replay:
    trace = (path.parent / scenario.replay.trace).absolute()
    try:
        with trace.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot read the trace {trace}: {problem.strerror}; check the path") from None
    if scenario.replay.sha256 not in (None, digest):
        raise ScenarioError(
            f"{path}: the trace {trace} is another one than its `sha256` says; restore it, or change the digest"
        )
    return scenario.model_copy(update={"replay": scenario.replay.model_copy(update={"trace": trace, "sha256": digest})})


def _read(path: Path) -> dict[str, Any]:
    text = _text(path, "the scenario")
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 (a subclass of SafeLoader)
    except yaml.MarkedYAMLError as problem:
        line = f", line {problem.problem_mark.line + 1}" if problem.problem_mark else ""
        raise ScenarioError(f"{path}{line}: not valid YAML: {problem.problem}; correct that line") from None
    except (yaml.YAMLError, ValueError) as problem:  # ValueError: a date or number that cannot be
        reason = str(problem).splitlines()[0]
        raise ScenarioError(f"{path}: not valid YAML: {reason}; correct it") from None
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: holds no keys; a scenario begins with `schema_version: 1`")
    return data


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ScenarioError(f"cannot read {what} {path}: {problem.strerror}; check the path") from None
    except UnicodeDecodeError as problem:
        raise ScenarioError(f"{path}: not UTF-8 text at byte {problem.start}; save it as UTF-8") from None


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                mark = node.value[index][0].start_mark
                problem = f"the key `{key}` stands twice"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=mark)
        return super().construct_mapping(node, deep)
