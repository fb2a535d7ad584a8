"""Where scenarios come from: those that are built in, by name, and YAML files, by path."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from scenarios.errors import ScenarioError
from scenarios.model import Scenario
from scenarios.strict import closest

BUILTIN = Path(__file__).with_name("builtin")


def list_scenarios() -> tuple[str, ...]:
    """List the names of the built-in scenarios, sorted."""
    return tuple(sorted(path.stem for path in BUILTIN.glob("*.yaml")))


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Load a built-in scenario by name, or a YAML file by path; raise ScenarioError."""
    if str(name_or_path) in list_scenarios():
        return _read(BUILTIN / f"{name_or_path}.yaml")
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        names = list_scenarios()
        near = closest(str(name_or_path), names)
        hint = f", did you mean `{near}`?" if near else ""
        raise ScenarioError(
            f"no scenario is named `{name_or_path}`{hint} (built in: {', '.join(names)}; or give a YAML file)"
        )
    return _read(path)


def _read(path: Path) -> Scenario:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ScenarioError(f"cannot read the scenario {path}: {problem.strerror}; check the path") from None
    except UnicodeDecodeError as problem:
        raise ScenarioError(f"{path}: not UTF-8 text at byte {problem.start}; save it as UTF-8") from None
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
    return Scenario.parse(data, where=str(path), error=ScenarioError)


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
