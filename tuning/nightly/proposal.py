"""What a night proposes, as a file that a person applies. The nightly job itself changes nothing in production."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from dashboards.systemd import command_line
from harness.errors import ConfigError
from harness.files import write_atomically
from tuning.nightly import flags_file
from tuning.nightly.launch_words import Change, LaunchWords

Form = Literal["patch", "systemd", "kubernetes"]
FLAGS_FILE = "sglang.flags"
"""What a patch changes when no target is named."""
SUFFIXES = {"patch": "patch", "systemd": "conf", "kubernetes": "yaml"}


@dataclass(frozen=True)
class _Draft:
    """What is proposed, and what a person does with it, a line for each command."""

    body: str
    apply: Sequence[str]
    rollback: Sequence[str]


def write_proposal(
    folder: Path,
    *,
    current: Sequence[str],
    proposed: Sequence[str],
    form: Form,
    target: str | None,
    command: Sequence[str] = (),
) -> Path:
    """Write `proposal.*` to the folder of the night's study, and return its path.

    `current` and `proposed` are flags that differ. A patch changes those lines of the flags file `target` and leaves
    the others; without a target it is for a file of the current flags. The other forms replace a command line: of the
    unit `target`, such as sglang.service, or of the container NAMESPACE/KIND/NAME/CONTAINER. They change the flags in
    `command`, by which production is launched; it may be left out when `current` is all of it.
    Raises ConfigError when these do not fit, StoreError when nothing can be written.
    """
    path = (folder / f"proposal.{SUFFIXES[form]}").absolute()
    before = LaunchWords.of(current)
    change = Change.between(before.flags, LaunchWords.of(proposed).flags)
    if form == "patch":
        draft = _patch(path, before, change, target)
    else:
        replace = _drop_in if form == "systemd" else _strategic_merge
        draft = replace(path, _changed(LaunchWords.of(command or current), change), target)
    write_atomically(path, "".join(f"{line}\n" for line in _head(draft, change)) + draft.body)
    return path


def _changed(launch: LaunchWords, change: Change) -> LaunchWords:
    """Make the change in a whole launch command."""
    where = "the launch command in production"
    if not launch.program:
        raise ConfigError(
            "proposal: a command line is replaced as a whole, and only its flags are known; "
            'give the launch command in production, or propose a patch of a flags file (form = "patch")'
        )
    flags = change.made_in(launch.flags, where)
    return LaunchWords(launch.program, {**flags, **change.coming(launch.flags.keys(), where)})


def _head(draft: _Draft, change: Change) -> Iterator[str]:
    yield "# Proposed by hicache-tune; nothing has been changed."
    for title, lines in (("Changes", change.in_words()), ("Apply", draft.apply), ("Rollback", draft.rollback)):
        yield f"# {title}:"
        yield from (f"#   {_printable(line)}" for line in lines)


def _printable(text: str) -> str:
    """Keep a comment on its line, whatever a value holds."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _patch(path: Path, current: LaunchWords, change: Change, target: str | None) -> _Draft:
    file = Path(target or FLAGS_FILE)
    try:
        old = file.read_bytes().decode("utf-8") if target else flags_file.text_of(current.flags, FLAGS_FILE)
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{file}: no readable flags file ({problem}); correct the proposal's target") from None
    new = flags_file.edited(old, change, str(file))
    words = ["patch", "--strip=1", f"--input={path}"]
    if target:
        words.insert(1, f"--directory={file.absolute().parent}")
    return _Draft(
        flags_file.patch(file.name, old, new),
        [shlex.join(words), "then restart the engine"],
        [shlex.join([*words, "--reverse"]), "then restart the engine"],
    )


def _drop_in(path: Path, proposed: LaunchWords, target: str | None) -> _Draft:
    if target is None or not re.fullmatch(r"[\w:.\\@-]+\.service", target):
        raise ConfigError(f"proposal target {target}: name the unit that runs the engine, such as sglang.service")
    words = [*proposed.program, *_flag_words(proposed)]
    # systemd reads drop-ins by the order of their names: without this one, that of an earlier night counts again.
    installed = f"/etc/systemd/system/{target}.d/50-{path.parent.name}.conf"
    restart = ["sudo systemctl daemon-reload", f"sudo systemctl restart {shlex.quote(target)}"]
    return _Draft(
        f"[Service]\nExecStart=\nExecStart={command_line(words)}\n",
        [
            f"systemctl cat {shlex.quote(target)}  # look first: the whole command line is replaced",
            shlex.join(["sudo", "install", "-D", "--mode=0644", str(path), installed]),
            *restart,
        ],
        [shlex.join(["sudo", "rm", installed]), *restart],
    )


def _strategic_merge(path: Path, proposed: LaunchWords, target: str | None) -> _Draft:
    parts = re.fullmatch(r"([\w.-]+)/(deployment|statefulset|daemonset)/([\w.-]+)/([\w.-]+)", target or "")
    if parts is None:
        raise ConfigError(
            f"proposal target {target}: write NAMESPACE/KIND/NAME/CONTAINER, "
            "such as default/deployment/sglang/engine; KIND is deployment, statefulset or daemonset"
        )
    namespace, kind, name, container = parts.groups()
    changed = {
        "name": container,
        "command": _words(proposed.program),
        "args": _words(_flag_words(proposed)),
    }
    body = yaml.dump(
        {"spec": {"template": {"spec": {"containers": [changed]}}}}, Dumper=_Dumper, sort_keys=False, width=100_000
    )
    kubectl = f"kubectl --namespace={namespace}"
    return _Draft(
        body,
        [
            f"{kubectl} get {kind}/{name} --output=yaml  # look first: command and args are replaced",
            f"{kubectl} patch {kind}/{name} {shlex.quote(f'--patch-file={path}')}",
        ],
        [f"{kubectl} rollout undo {kind}/{name}"],
    )


def _flag_words(launch: LaunchWords) -> list[str]:
    return [word for words in launch.flags.values() for word in words]


class _Word(str):
    """A word of a command; always quoted, as parsers do not agree on what else is a number or a truth value."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes words in double quotes."""


_Dumper.add_representer(
    _Word, lambda dumper, word: dumper.represent_scalar("tag:yaml.org,2002:str", str(word), style='"')
)


def _words(words: Sequence[str]) -> list[_Word]:
    """Write `$` twice: Kubernetes puts a variable's value in the place of $(NAME)."""
    return [_Word(word.replace("$", "$$")) for word in words]
