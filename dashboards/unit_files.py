"""Units that start a nightly job: for systemd, Kubernetes and GitHub Actions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from dashboards.files import FOLDER
from dashboards.systemd import command_line, path_list, path_value
from harness.errors import ConfigError
from harness.files import write_atomically

UNITS_FOLDER = FOLDER / "units"
_PLACEHOLDER = re.compile("@([A-Z]+)@")


def write_units(folder: Path, *, config: Path, python: str, results: Path = Path("results")) -> list[Path]:
    """Write the units of the job of `config` to `folder`, and return their paths.

    `python` is the interpreter whose environment has hicache-tune. `results` is the folder that the job's file names;
    units run in the folder of that file. Raises ConfigError rather than write over a file of yours, StoreError when
    nothing can be written.
    """
    config = config.absolute()
    command = [str(Path(python).absolute().with_name("hicache-tune")), "nightly", "--config", str(config)]
    for value in (*command, str(results)):
        if not value.isprintable():
            raise ConfigError(f"{value!r}: a unit cannot hold this path; choose one without control characters")
    texts = {
        folder / source.name: _filled_in(source, command, config, config.parent / results)
        for source in sorted(UNITS_FOLDER.iterdir())
    }
    for path in texts:
        if path.exists():
            raise ConfigError(f"{path} is there already, and may hold changes of yours; name another folder")
    for path, text in texts.items():
        write_atomically(path, text)
    return list(texts)


def _filled_in(source: Path, command: Sequence[str], config: Path, results: Path) -> str:
    is_systemd = source.suffix in (".service", ".timer")
    values = _for_systemd(command, config, results) if is_systemd else _for_shell(command, config, results)
    return _PLACEHOLDER.sub(lambda match: values[match[1]], source.read_text(encoding="utf-8"))


def _for_systemd(command: Sequence[str], config: Path, results: Path) -> Mapping[str, str]:
    return {
        "COMMAND": command_line(command),
        "FOLDER": path_value(str(config.parent)),
        "RESULTS": path_list([str(results)]),
    }


def _for_shell(command: Sequence[str], config: Path, results: Path) -> Mapping[str, str]:
    return {
        "COMMAND": shlex.join(command),
        "CONFIG": shlex.quote(str(config)),
        "FOLDER": shlex.quote(str(config.parent)),
        "RESULTS": shlex.quote(str(results)),
    }
