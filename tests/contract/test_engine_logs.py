"""Holds failure classes and launch phases against logs of real SGLang 0.5.15 servers and of public bug reports."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from harness.engine.failure import CAME_UP as READY
from harness.engine.failure import Blame, FailureKind, classify
from harness.engine.readiness import LaunchPhase, phase_of
from tests.support.cases import DATA, case_folder, expected

pytestmark = pytest.mark.contract

LOGS = DATA / "logs"
CAME_UP = sorted(str(path.relative_to(LOGS)) for path in LOGS.glob("*/up_*"))


def log(name: str) -> str:
    """Read a recorded log."""
    return gzip.decompress((LOGS / name).read_bytes()).decode()


def case_log(number: str, name: str = "server.log") -> str:
    """Read the log of a case."""
    return Path(case_folder(number) / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "exit_code", "kind", "blame", "said"),
    [
        (
            "cpu-0.5.15/fail_bad_flag.log.gz",
            2,
            FailureKind.BAD_FLAG,
            Blame.USER,
            "sglang serve: error: unrecognized arguments: --no-such-flag 1",
        ),
        (
            "h200-0.5.15/fail_argparse_wb60.log.gz",
            2,
            FailureKind.BAD_FLAG,
            Blame.USER,
            "sglang serve: error: unrecognized arguments: 0.0",
        ),
        (
            "cpu-0.5.15/fail_model_missing.log.gz",
            1,
            FailureKind.MODEL_MISSING,
            Blame.USER,
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            "'namespace/repo_name': '/models/nomodel'. Use `repo_type` argument if needed.",
        ),
        (
            "cpu-0.5.15/fail_port_in_use.log.gz",
            3,
            FailureKind.PORT_IN_USE,
            Blame.MACHINE,
            "[2026-11-30 06:59:18] ERROR:    [Errno 98] error while attempting to bind on address "
            "('127.0.0.1', 30411): address already in use",
        ),
        (
            "h200-0.5.15/fail_host400.log.gz",
            -9,
            FailureKind.HOST_MEMORY_REFUSED,
            Blame.SETTING,
            "Not enough host memory available. Requesting 400.00 GB but only have 120.46 GB free. "
            "Please reduce the size of the hierarchical cache.",
        ),
        (
            "h200-0.5.15/fail_frac005.log.gz",
            -9,
            FailureKind.KV_POOL_TOO_SMALL,
            Blame.SETTING,
            "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.05. "
            "Raise --mem-fraction-static above 0.090 (minimum viable = 1 - available/pre = 0.0894). "
            "If using speculative decoding, draft weights are now counted.",
        ),
        (
            "h200-0.5.15/fail_frac099_oom_in_warm_up.log.gz",
            None,
            FailureKind.GPU_OOM_UNDER_LOAD,
            Blame.SETTING,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 580.00 MiB. GPU 0 has a total "
            "capacity of 139.80 GiB of which 332.31 MiB is free. Including non-PyTorch memory, this process "
            "has 139.47 GiB memory in use. Of the allocated memory 138.57 GiB is allocated by PyTorch, with "
            "24.00 MiB allocated in private pools (e.g., CUDA Graphs), and 160.82 MiB is reserved by PyTorch "
            "but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True ",
        ),
    ],
)
def test_real_failures(name: str, exit_code: int, kind: FailureKind, blame: Blame, said: str) -> None:
    """Each real failure has its class, whom to blame, and the engine's own words."""
    failure = classify(log(name), exit_code)
    assert (failure.kind, failure.blame, failure.said, failure.exit_code) == (kind, blame, said, exit_code)
    assert said in failure.sentence
    assert failure.last_lines


@pytest.mark.parametrize("name", CAME_UP)
def test_a_good_log_has_no_class(name: str) -> None:
    """Nothing in the log of a server that worked passes for a reason to fail, wherever the log is cut."""
    lines = log(name).splitlines(keepends=True)
    for count in range(10, len(lines) + 1, 10):
        failure = classify("".join(lines[:count]), -9)
        assert (failure.kind, failure.said) == (FailureKind.CRASH, "")


@pytest.mark.parametrize("name", CAME_UP)
def test_a_good_launch_passes_its_phases_in_order(name: str) -> None:
    """Phases never go back, and end with a server that is up; HiCache has a phase of its own."""
    seen: list[LaunchPhase] = []
    text = ""
    for line in log(name).splitlines(keepends=True):
        text += line
        if line.startswith("[") and (phase := phase_of(text)) not in seen[-1:]:
            seen.append(phase)
    order = list(LaunchPhase)
    assert seen == sorted(set(seen), key=order.index)
    assert seen[0] is LaunchPhase.IMPORTS
    assert seen[-1] is LaunchPhase.UP
    assert (LaunchPhase.HOST_POOL in seen) is any(word in name for word in ("up_hicache", "wt60", "wb60"))
    assert (LaunchPhase.GRAPHS in seen) is name.startswith("h200")


def test_the_ready_line_comes_before_the_port_is_found_taken() -> None:
    """A log alone does not show readiness: the server that lost its port had printed the ready line too."""
    assert phase_of(log("cpu-0.5.15/fail_port_in_use.log.gz")) is LaunchPhase.UP


@pytest.mark.parametrize(
    ("number", "name", "answer"),
    [
        ("33", "server.log", None),
        ("35", "low.log", "low"),
        ("35", "high.log", "high"),
        ("37", "server.log", None),
        ("45", "server.log", None),
    ],
)
def test_cases_have_the_class_that_they_expect(number: str, name: str, answer: str | None) -> None:
    """The class, whether it is infeasible, and whether a retry makes sense are as the case says."""
    case = expected(number) if answer is None else expected(number)[answer]
    failure = classify(case_log(number, name), -9, under_load=number in ("37", "45"))
    assert failure.kind.value == case["class"]
    assert (failure.blame is Blame.SETTING) is (case["trial"] == "infeasible")
    assert (failure.blame is Blame.MACHINE) is bool(case.get("retryable", case.get("retry", False)))


def test_a_refusal_is_one_whatever_its_figures_say() -> None:
    """Case 33: older servers refuse 52 GB of 57 GB free; the figures are passed on as they were said."""
    case, said = expected("33"), classify(case_log("33"), 1).said
    assert f"Requesting {case['requested_gb']:.2f} GB" in said
    assert f"only have {case['free_gb']:.2f} GB free" in said


def test_the_two_sides_of_the_memory_fraction_have_opposite_advice() -> None:
    """Case 35: too low and too high are told apart, and each says which way to go."""
    low, high = classify(case_log("35", "low.log"), -9), classify(case_log("35", "high.log"), -9)
    assert "a larger --mem-fraction-static" in low.sentence
    assert "a smaller --mem-fraction-static" in high.sentence


def test_a_port_held_by_a_predecessor_is_nobodys_fault() -> None:
    """Case 39: it is tried again, not charged to the setting, and nothing that holds the port is touched."""
    failure = classify(case_log("39"), 1)
    assert failure.kind is FailureKind.PORT_IN_USE
    assert (failure.blame is Blame.SETTING) is expected("39")["trial_charged"]
    assert "31236 is not available" in failure.said
    assert "nothing that holds this one was touched" in failure.sentence


def test_the_same_oom_is_another_class_once_the_server_is_up() -> None:
    """Case 45: the server started, so what it lacks is headroom for load; its log says so by itself."""
    came_up, _, launch_alone = case_log("45").partition("\n")
    assert READY in came_up
    assert classify(launch_alone, -9).kind is FailureKind.GPU_OOM_AT_START
    assert classify(launch_alone, -9, under_load=True).kind is FailureKind.GPU_OOM_UNDER_LOAD
    assert classify(case_log("45"), -9).kind is FailureKind.GPU_OOM_UNDER_LOAD
