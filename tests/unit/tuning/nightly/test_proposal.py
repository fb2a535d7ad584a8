"""A night's proposal: the tools that a person applies it with take it, and it says exactly what was meant."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ConfigError, StoreError
from tests.support.systemd import commands, complaints
from tuning.nightly.proposal import Form, write_proposal

PROGRAM = ["/usr/bin/env", "python", "-m", "sglang.launch_server"]
CURRENT = ["--model-path", "/m/x", "--page-size", "32", "--disable-radix-cache"]
PROPOSED = ["--model-path", "/m/x", "--page-size", "64", "--hicache-write-policy", "write_back"]
ODD = ["--a", '{"rope": "100%"}', "--b", "$HOME", "--c", "it's #1", "--d", "$(NAME)", "yes", "1e3", "--e", "", "back\\"]

values = st.lists(
    st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8).filter(lambda text: text[:2] != "--"),
    max_size=2,
)
launches = st.dictionaries(st.from_regex(r"--[a-z]{1,3}", fullmatch=True), values, max_size=6).map(
    lambda flags: [word for name, of in flags.items() for word in (name, *of)]
)


def _words(text: str) -> list[str]:
    return [word for line in text.split("\n") for word in shlex.split(line, comments=True)]


def _commands(proposal: Path, title: str) -> list[str]:
    """Return the lines under a title of the head."""
    lines = proposal.read_text(encoding="utf-8").split("\n")
    after = lines[lines.index(f"# {title}:") + 1 :]
    ends = next(number for number, line in enumerate(after) if not line.startswith("#   "))
    return [line.removeprefix("#   ") for line in after[:ends]]


def _run(line: str, folder: Path) -> None:
    subprocess.run(shlex.split(line), cwd=folder, check=True, capture_output=True)


def _patch(folder: Path, target: Path | None, current: list[str], proposed: list[str]) -> Path:
    return write_proposal(
        folder / "chat-20261130",
        current=current,
        proposed=proposed,
        form="patch",
        target=str(target) if target else None,
    )


@pytest.mark.parametrize("end", ["\n", "", "\n\n# the end", "\n\n"])
def test_a_flags_file_keeps_what_is_not_changed(end: str, tmp_path: Path) -> None:
    """Comments, blank lines, other flags and the end of the file stay; the patch goes in and out again."""
    file = tmp_path / "my flags"
    old = "# production\n\n--host   0.0.0.0 # all\n--page-size 32\n--model-path /m/x --disable-radix-cache" + end
    file.write_text(old, encoding="utf-8")
    proposal = _patch(tmp_path, file, CURRENT, PROPOSED)
    _run(_commands(proposal, "Apply")[0], tmp_path)
    assert file.read_text(encoding="utf-8") == (
        "# production\n\n--host   0.0.0.0 # all\n--page-size 64\n--model-path /m/x\n"
        + end.removeprefix("\n")
        + ("\n" if end.endswith("end") else "")
        + "--hicache-write-policy write_back\n"
    )
    _run(_commands(proposal, "Rollback")[0], tmp_path)
    assert file.read_text(encoding="utf-8") == old


def test_git_applies_it_too(tmp_path: Path) -> None:
    """A flags file under version control is changed by `git apply`."""
    file = tmp_path / "sglang.flags"
    file.write_text("--page-size 32\n--disable-radix-cache", encoding="utf-8")
    proposal = _patch(tmp_path, file, CURRENT[2:], PROPOSED[2:])
    _run("git init --quiet", tmp_path)
    _run(f"git apply {proposal}", tmp_path)
    assert _words(file.read_text(encoding="utf-8")) == PROPOSED[2:]
    _run(f"git apply --reverse {proposal}", tmp_path)
    assert file.read_text(encoding="utf-8") == "--page-size 32\n--disable-radix-cache"


@settings(max_examples=30, deadline=None)
@given(current=launches, proposed=launches)
def test_any_patch(tmp_path_factory: pytest.TempPathFactory, current: list[str], proposed: list[str]) -> None:
    """Without a target it changes a file of the current flags into one of the proposed flags."""
    folder = tmp_path_factory.mktemp("patch")
    proposal = _patch(folder, None, current, proposed)
    if sorted(_flags(current)) == sorted(_flags(proposed)):
        return
    file = folder / "sglang.flags"
    old = "".join(shlex.join(flag) + "\n" for flag in _flags(current))
    file.write_text(old, encoding="utf-8")
    _run(_commands(proposal, "Apply")[0], folder)
    # `patch` removes a file that has become empty.
    new = file.read_text(encoding="utf-8") if file.exists() else ""
    assert sorted(_flags(_words(new))) == sorted(_flags(proposed))
    _run(_commands(proposal, "Rollback")[0], folder)
    assert (file.read_text(encoding="utf-8") if file.exists() else "") == old


def _flags(words: list[str]) -> list[list[str]]:
    flags: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            flags.append([])
        flags[-1].append(word)
    return flags


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--page-size 16\n--disable-radix-cache\n", "line 1: says --page-size 16, production was measured with"),
        ("--page-size 32\n", "has no --disable-radix-cache, which production was measured with"),
        ("--page-size 32\n--disable-radix-cache\n--hicache-write-policy x", "line 3: .* was measured without"),
        ("python -m x --page-size 32\n", "line 1: python -m x is no flag"),
        ("--page-size 32 \\\n--disable-radix-cache\n", "line 1: No escaped character"),
        ("--page-size '32\n", "line 1: No closing quotation"),
    ],
)
def test_a_flags_file_that_does_not_fit(text: str, said: str, tmp_path: Path) -> None:
    """What production was measured with must be what the file says: a guess would change something else."""
    file = tmp_path / "flags"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        _patch(tmp_path, file, CURRENT[2:], PROPOSED[2:])


def test_a_flag_given_twice(tmp_path: Path) -> None:
    """The engine heeds the last one, so all are changed."""
    file = tmp_path / "flags"
    file.write_text("--page-size 32\n--page-size 32\n", encoding="utf-8")
    _run(_commands(_patch(tmp_path, file, ["--page-size", "32"], ["--page-size", "64"]), "Apply")[0], tmp_path)
    assert file.read_text(encoding="utf-8") == "--page-size 64\n--page-size 64\n"


def test_no_flags_file(tmp_path: Path) -> None:
    """A target that is not there is said."""
    with pytest.raises(ConfigError, match="no readable flags file"):
        _patch(tmp_path, tmp_path / "missing", CURRENT, PROPOSED)


def test_line_breaks_need_another_form(tmp_path: Path) -> None:
    """A flags file has a flag on each line."""
    with pytest.raises(ConfigError, match="line break in the value of --x"):
        _patch(tmp_path, None, ["--x", "a"], ["--x", "a\nb"])


def test_a_drop_in_is_the_command(tmp_path: Path) -> None:
    """Installed by its own command, systemd takes it over the unit's command, word for word."""
    unit = tmp_path / "sglang@1.service"
    unit.write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n", encoding="utf-8")
    words = [*PROGRAM, *PROPOSED, *ODD, "--two-lines", "a\nb"]
    folder = tmp_path / "chat-20261130"
    proposal = write_proposal(folder, current=[*PROGRAM, *CURRENT], proposed=words, form="systemd", target=unit.name)
    apply = [shlex.split(line, comments=True) for line in _commands(proposal, "Apply")]
    install = next(line for line in apply if "install" in line)
    assert install[-2] == str(proposal)
    installed = install[-1]
    assert installed == f"/etc/systemd/system/{unit.name}.d/50-chat-20261130.conf"
    assert _commands(proposal, "Rollback")[0] == f"sudo rm {installed}"
    here = str(tmp_path / Path(installed).relative_to("/etc/systemd/system"))
    subprocess.run([*install[1:-1], here], check=True)
    assert complaints(unit) == ""
    assert [[word.replace("$$", "$") for word in command] for command in commands(unit)] == [words]


def test_a_later_drop_in_counts(tmp_path: Path) -> None:
    """Nights are installed beside each other, so that removing the last one brings back the one before."""
    unit = tmp_path / "sglang.service"
    unit.write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n", encoding="utf-8")
    for night in ("chat-20261129", "chat-20261130"):
        proposed = ["/bin/echo", "--night", night]
        proposal = write_proposal(
            tmp_path / night, current=["/bin/echo"], proposed=proposed, form="systemd", target=unit.name
        )
        installed = Path(shlex.split(_commands(proposal, "Apply")[1])[-1])
        here = tmp_path / f"{unit.name}.d" / installed.name
        here.parent.mkdir(exist_ok=True)
        here.write_bytes(proposal.read_bytes())
    assert commands(unit) == [["/bin/echo", "--night", "chat-20261130"]]
    here.unlink()
    assert commands(unit) == [["/bin/echo", "--night", "chat-20261129"]]


def test_a_kubernetes_patch_is_the_containers_command(tmp_path: Path) -> None:
    """Merged into a Deployment it is valid, and every word is a string for every reader of YAML."""
    words = [*PROGRAM, *PROPOSED, *ODD, "--two-lines", "a\nb"]
    target = "prod/deployment/sglang/engine"
    current = [*PROGRAM, *CURRENT]
    proposal = write_proposal(tmp_path / "n", current=current, proposed=words, form="kubernetes", target=target)
    text = proposal.read_text(encoding="utf-8")
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "engine"
    assert [word.replace("$$", "$") for word in container["command"] + container["args"]] == words
    assert "$$(NAME)" in container["args"]
    assert container["command"] == PROGRAM
    _is_valid_deployment(container)
    listed = [line.strip() for line in text.split("\n") if line.strip().startswith("- ") and "name:" not in line]
    assert len(listed) == len(words)
    assert {line for line in listed if not (line[2] == line[-1] == '"')} == set()
    apply, rollback = _commands(proposal, "Apply"), _commands(proposal, "Rollback")
    assert apply[-1] == f"kubectl --namespace=prod patch deployment/sglang --patch-file={proposal}"
    assert rollback == ["kubectl --namespace=prod rollout undo deployment/sglang"]


def _is_valid_deployment(container: dict[str, Any]) -> None:
    pod = {"metadata": {"labels": {"app": "sglang"}}, "spec": {"containers": [container | {"image": "sglang:1"}]}}
    spec = {"selector": {"matchLabels": {"app": "sglang"}}, "template": pod}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "sglang"}, "spec": spec}
    kubernetes_validate.validate(deployment, "1.37", strict=True)


@pytest.mark.parametrize(
    ("form", "target", "said"),
    [
        ("systemd", None, "name the unit"),
        ("systemd", "sglang", "name the unit"),
        ("systemd", "../x.service", "name the unit"),
        ("kubernetes", None, "NAMESPACE/KIND/NAME/CONTAINER"),
        ("kubernetes", "sglang", "NAMESPACE/KIND/NAME/CONTAINER"),
        ("kubernetes", "prod/job/sglang/engine", "NAMESPACE/KIND/NAME/CONTAINER"),
    ],
)
def test_a_target_of_another_kind(form: Form, target: str | None, said: str, tmp_path: Path) -> None:
    """Each form says what it needs, and writes nothing."""
    with pytest.raises(ConfigError, match=said):
        write_proposal(tmp_path, current=[*PROGRAM, *CURRENT], proposed=PROPOSED, form=form, target=target)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("form", "target"), [("systemd", "sglang.service"), ("kubernetes", "prod/deployment/sglang/engine")]
)
def test_flags_alone_are_no_command(form: Form, target: str, tmp_path: Path) -> None:
    """Where a command line is replaced, all of it must be known: the model's path would be lost."""
    with pytest.raises(ConfigError, match="only its flags are known"):
        write_proposal(tmp_path, current=CURRENT, proposed=PROPOSED, form=form, target=target)
    assert list(tmp_path.iterdir()) == []


def test_tuned_flags_change_in_the_whole_command(tmp_path: Path) -> None:
    """What a night knows of production is what is tuned; the rest of the command stays, in its order."""
    command = [*PROGRAM, "--host", "::", "--page-size", "32", "--tp", "2", "--disable-radix-cache"]
    proposal = write_proposal(
        tmp_path,
        current=CURRENT[2:],
        proposed=PROPOSED[2:],
        form="kubernetes",
        target="prod/deployment/sglang/engine",
        command=command,
    )
    (container,) = yaml.safe_load(proposal.read_text(encoding="utf-8"))["spec"]["template"]["spec"]["containers"]
    assert container["args"] == shlex.split("--host :: --page-size 64 --tp 2 --hicache-write-policy write_back")


def test_a_command_that_does_not_fit(tmp_path: Path) -> None:
    """It must be the one that was measured."""
    for command in (["/bin/x", "--page-size", "16"], ["/bin/x"], ["/bin/x", *CURRENT, "--hicache-write-policy", "y"]):
        with pytest.raises(ConfigError, match=r"the launch command in production: .* production was measured with"):
            write_proposal(
                tmp_path, current=CURRENT, proposed=PROPOSED, form="systemd", target="x.service", command=command
            )


def test_the_head_says_what_changes(tmp_path: Path) -> None:
    """One line for each flag, whatever its value holds."""
    proposal = _patch(tmp_path, None, ["--page-size", "32", "--off"], ["--page-size", "64", "--on", "a b"])
    assert _commands(proposal, "Changes") == [
        "--page-size 32  becomes  --page-size 64",
        "without --off",
        "with --on 'a b'",
    ]
    words = ["/bin/x", "--y", "a\n[Service]\r\u2028b"]
    proposal = write_proposal(tmp_path, current=["/bin/x", "--z"], proposed=words, form="systemd", target="x.service")
    assert _commands(proposal, "Changes") == ["without --z", r"with --y 'a\n[Service]\r\u2028b'"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A full or missing disk is one sentence."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_proposal(tmp_path / "file", current=CURRENT, proposed=PROPOSED, form="patch", target=None)
