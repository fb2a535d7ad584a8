"""Whatever a user mistypes is answered by one sentence that names it and what to do, with exit code 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import EngineMissing
from tests.support.console import Run

CPU = ("search", "--engine", "cpu", "--dry-run")
ATTACH = ("search", "--engine", "attach", "--url")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search", "--trails", "5"), "Unknown option: --trails. Did you mean --trials?"),
        (("serch",), 'Unknown command "serch". Did you mean "search"?'),
        (
            ("search", "--engine", "cpuu"),
            'Invalid value "cpuu" for --engine. Choose from: "local", "docker", "attach", ',
        ),
        (("search", "--trials", "many"), 'Invalid value for --trials: unable to convert "many" into int.'),
        (("search", "--trials", "1"), 'Invalid value "1" for --trials. Must be >= 2.'),
        (("search", "--tp-size", "0"), 'Invalid value "0" for --tp-size. Must be >= 1.'),
        (("search", "--metrics-port", "70000"), 'Invalid value "70000" for --metrics-port. Must be <= 65535.'),
        (("search",), "--model is missing; name a model folder or a hub name, or use --engine cpu"),
        (("search", "--model", "./none"), "--model ./none: no such folder; give a folder with config.json or a hub"),
        (("search", "--model", "./"), "--model ./: no config.json in it; give the folder that holds the model's files"),
        ((*CPU, "--scenario", "none.yaml"), "cannot read the scenario none.yaml: No such file or directory; check"),
        ((*CPU, "--scenario", "cpu-chatt"), "no scenario is named `cpu-chatt`, did you mean `cpu-chat`?"),
        ((*CPU, "--budget", "15"), "--budget 15: write a duration above zero, such as 90s, 15m, 2h or 1h30m"),
        ((*CPU, "--confirm-until", "5"), "--confirm-until 5: write a percentage above 0%, such as 5%"),
        ((*CPU, "--confirm-until", "0%"), "--confirm-until 0%: write a percentage above 0%, such as 5%"),
        ((*CPU, "--confirm-rounds-most", "1"), "--confirm-rounds-most 1 is below --confirm-rounds 2; leave one of"),
        (("compare", "off", "of", "--engine", "cpu"), "setting `of`: unknown word `of`; did you mean `off`?"),
        ((*CPU, "--load-limit", "soon"), "--load-limit soon: write a duration above zero"),
        ((*CPU, "--ready-timeout", "0s"), "--ready-timeout 0s: write a duration above zero"),
        ((*CPU, "--hang-after", "never"), "--hang-after never: "),
        ((*CPU, "--constraint", "error <= 1%"), "constraint `error <= 1%`: unknown metric `error`; did you mean `er"),
        ((*CPU, "--objective", "ttft.p98"), "--objective `ttft.p98`: unknown metric `ttft.p98`; did you mean `ttft.p9"),
        (
            (*CPU, "--objective", "host_memory"),
            "--objective `host_memory`: `host_memory` is no objective, as single",
        ),
        (
            (*CPU, "--objective", "goodput"),
            "--objective `goodput`: `goodput` needs a service level in braces, as in",
        ),
        ((*CPU, "--pareto", "thruput"), "--pareto `thruput`: unknown metric `thruput`; did you mean `throughput"),
        ((*CPU, "--pareto", "ttft.p99"), "--pareto `ttft.p99`: it is a goal already; leave it out"),
        (
            (*CPU, "--scenario", "few-shot-classify", "--objective", "throughput"),
            "--objective `throughput.tokens`: the sessions of few-shot-classify arrive at their own rate, so every",
        ),
        (("find-limit", "--objective", "e2e.p90"), "Unknown option: --objective."),
        ((*CPU, "--constraint", "errors < 1%"), "constraint `errors < 1%`: write METRIC <= LIMIT or METRIC >= LIMIT"),
        ((*CPU, "--page-size", "x"), "--page-size x: not a number; give LOW:HIGH[:STEP], a comma list, or one value"),
        ((*CPU, "--hicache-ratio", "2", "--hicache-size", "9"), "--hicache-ratio and --hicache-size are both given"),
        (
            (*CPU, "--page-size", "16,32", "--engine-arg=--page-size=64"),
            "--engine-arg=--page-size=64: --page-size is searched too (16,32); leave it out of one",
        ),
        ((*CPU, "--engine-arg=--api-key=hush"), "--engine-arg=--api-key=...: a secret must not be an argument, and"),
        ((*CPU, "--image", "sglang"), "--image is for --engine docker, not cpu; leave it out"),
        ((*CPU, "--url", "http://127.0.0.1:9"), "--url is for --engine attach, not cpu; leave it out"),
        ((*CPU, "--engine-port", "0"), 'Invalid value "0" for --engine-port. Must be >= 1.'),
        (("search", "--engine", "attach"), "--url is missing; give the address of the server to attach to"),
        (
            (*ATTACH, "http://127.0.0.1:9", "--preset", "full"),
            "--preset full: nothing restarts the server, so only the",
        ),
        ((*ATTACH, "127.0.0.1:9"), "--url 127.0.0.1:9: begin it with http:// or https://"),
        ((*ATTACH, "http://127.0.0.1:9"), "--url: the engine at http://127.0.0.1:9 did not answer /server_info: "),
        ((*ATTACH, "http://127.0.0.1:9", "--api-key-env", "NO_KEY"), "--api-key-env NO_KEY: that variable holds no k"),
        (("search", "--engine", "docker", "--model", "Org/Name"), "--image is missing; name an image that has SGLang"),
        (("verify", "--image", "sglang", "--model", "m"), "--image is for --engine docker; leave it out, or give"),
        (
            (*CPU, "--preset", "hicach"),
            'Invalid value "hicach" for --preset. Choose from: "hicache", "hicache+memory", ',
        ),
        ((*CPU, "--search", "max-running-requests=8:log"), "--max-running-requests 8:log: not a number; give LOW:HIGH"),
        ((*CPU, "--tp-size", "2"), "--tp-size, --dp-size and --engine-python are not for"),
        ((*CPU, "--load-processes", "4096"), "--load-processes 4096: this machine has "),
        ((*CPU, "--session-header", "Host"), "--session-header Host: header 'Host' belongs to the request itself"),
        ((*CPU, "--study", "a/b"), "--study a/b: use letters, digits, dots, dashes and underscores"),
        ((*CPU, "--resume"), "--resume needs --study NAME, the study to go on with"),
        (("search", "--engine", "cpu", "--study", "s", "--resume"), "--resume: there is no study in "),
        (("report", "none"), "there is no study in results/none; see --results and --study"),
        (("scenario", "show", "none.yaml"), "cannot read the scenario none.yaml: No such file or directory"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(run: Run, arguments: tuple[str, ...], said: str) -> None:
    """The sentence is on stderr alone, and nothing is made on disk."""
    answer = run(*arguments)
    assert answer.code == 1
    assert answer.err.startswith(f"hicache-tune: {said}")
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert not Path("results").exists()


def test_a_scenario_with_a_misspelled_key_names_the_key(run: Run) -> None:
    """The file, the key and the nearest valid one."""
    Path("mine.yaml").write_text("schema_version: 1\nnaem: mine\n", encoding="utf-8")
    answer = run(*CPU, "--scenario", "mine.yaml")
    assert answer.code == 1
    assert "mine.yaml" in answer.err
    assert "unknown key `naem`; did you mean `name`?" in answer.err


def test_a_missing_engine_names_the_command_that_installs_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU engine is one command away."""

    def find() -> None:
        raise EngineMissing("the CPU engine is not installed in x; run `hicache-tune engine install-cpu`")

    monkeypatch.setattr("harness.engine.cpu.engine.find", find)
    answer = run(*CPU)
    assert answer.code == 1
    assert "run `hicache-tune engine install-cpu`" in answer.err


def test_a_python_without_sglang_is_named(run: Run, model: Path) -> None:
    """This environment has no SGLang, and another Python may be given."""
    answer = run("search", "--model", str(model), "--engine-python", "./no-python")
    assert answer.code == 1
    assert "--engine-python no-python: No such file or directory; name a Python that has SGLang" in answer.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[search]\ntrails = 3\n", "hicache-tune.toml, [search]: unknown key `trails`; did you mean `trials`?"),
        ("[serch]\ntrials = 3\n", "hicache-tune.toml: unknown key `serch`; did you mean `search`?"),
        ("trials = 3\n", "hicache-tune.toml: unknown key `trials`; valid: analyze, compare, dashboard, diagnose"),
        ("search = 3\n", "hicache-tune.toml: `search` is a command; write its flags below [search]"),
        ("[scenario.show]\nsed = 1\n", "hicache-tune.toml, [scenario], [show]: unknown key `sed`; did you mean `seed`"),
        (
            "[search]\ndimensions = []\n",
            "hicache-tune.toml, [search]: unknown key `dimensions`; did you mean `dimension`",
        ),
        ("[find-limit]\ndimension = []\n", "hicache-tune.toml, [find-limit]: unknown key `dimension`"),
        ("[search]\ndimension = 3\n", "hicache-tune.toml, [[search.dimension]]: each dimension is a table of its own"),
        (
            "[[search.dimension]]\nflag = 'a'\ntyp = 'int'\n",
            "hicache-tune.toml, [[search.dimension]] 1 (a): unknown key `typ`; did you mean `type`?",
        ),
        (
            "[[search.dimension]]\nflag = 'max-running-requests'\ntype = 'int'\nrange = [9, 1]\n",
            "hicache-tune.toml, [[search.dimension]] 1 (max-running-requests): 9:1:1 is empty; give LOW <= HIGH",
        ),
        ("[search\n", "hicache-tune.toml: not valid TOML (Expected ']'"),
        ("[search]\ntrials = 'x'\n", "Invalid value for [trials] from "),
        ("[search]\nload_limit = 'x'\n", "--load-limit x: write a duration above zero"),
    ],
)
def test_a_mistake_in_the_file_is_named(run: Run, text: str, said: str) -> None:
    """Unknown keys fail, also those of tables that the command does not read."""
    Path("hicache-tune.toml").write_text(text, encoding="utf-8")
    answer = run(*CPU)
    assert answer.code == 1
    assert answer.err.startswith(f"hicache-tune: {said}")


def test_a_file_that_cannot_be_read_is_named(run: Run) -> None:
    """It is not passed over as if it were absent."""
    Path("hicache-tune.toml").mkdir()
    answer = run(*CPU)
    assert answer.code == 1
    assert "hicache-tune.toml: cannot be read (Is a directory); allow it or remove it" in answer.err


def test_help_is_given_whatever_the_file_says(run: Run) -> None:
    """Who mends the file needs to see the flags."""
    Path("hicache-tune.toml").write_text("[search\n", encoding="utf-8")
    assert run("search", "--help").code == 0


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        (
            "HICACHE_TUNE_TRAILS",
            "unknown variable HICACHE_TUNE_TRAILS in the environment; did you mean `HICACHE_TUNE_TR",
        ),
        (
            "HICACHE_TUNE_SEARCH_TRIALS",
            "unknown variable HICACHE_TUNE_SEARCH_TRIALS in the environment; did you mean `",
        ),
    ],
)
def test_a_misspelled_variable_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, said: str) -> None:
    """A variable that is no flag would otherwise be ignored in silence."""
    monkeypatch.setenv(variable, "4")
    answer = run(*CPU)
    assert answer.code == 1
    assert answer.err.startswith(f"hicache-tune: {said}")


@pytest.mark.parametrize("variable", ["HICACHE_TUNE_CPU_ENGINE_HOME", "HICACHE_TUNE_WHEEL_INDEX"])
def test_variables_of_the_cpu_engine_are_no_mistake(run: Run, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """They belong to another command or to no flag."""
    monkeypatch.setenv(variable, "x")
    assert run(*CPU).code == 0
