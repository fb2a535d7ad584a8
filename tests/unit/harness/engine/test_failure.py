"""Failure classes: which text decides, whom it blames, and what the user reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.failure import (
    ADVICE,
    BLAME,
    RULES,
    Blame,
    EngineLost,
    Failure,
    FailureKind,
    LaunchFailed,
    classify,
    last_lines,
)

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB."


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("launch_server.py: error: argument --page-size: invalid int value: 'x'", FailureKind.BAD_FLAG),
        ("launch_server.py: error: ambiguous option: --hi could match", FailureKind.BAD_FLAG),
        ("RuntimeError: cudaHostRegister failed (rc=2)", FailureKind.HOST_MEMORY_REFUSED),
        (
            "ValueError: No host memory is left for HiCache after the 10 GiB reserve",
            FailureKind.HOST_MEMORY_REFUSED,
        ),
        ("Exception: Capture cuda graph failed: CUDA out of memory", FailureKind.GRAPH_CAPTURE),
        ("Exception: Capture prefill CUDA graph failed: no kernel image", FailureKind.GRAPH_CAPTURE),
        ("OSError: Can't load the configuration of 'X/Y'. If you were trying", FailureKind.MODEL_MISSING),
        ("RuntimeError: Cannot find any model weights with `m`", FailureKind.MODEL_MISSING),
        (
            "X/Y is not a local folder and is not a valid model identifier listed on the hub",
            FailureKind.MODEL_MISSING,
        ),
        ("OSError: You are trying to access a gated repo.", FailureKind.MODEL_MISSING),
        ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", FailureKind.HANG),
        ("NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled system error", FailureKind.NCCL),
        (
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9",
            FailureKind.HOST_OOM_KILLED,
        ),
        ("Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering", FailureKind.HOST_OOM_KILLED),
        (
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -6). If exit code is -9 (SIGKILL)",
            FailureKind.CRASH,
        ),
        ("server_args=ServerArgs(watchdog_timeout=300, nccl_port=None)", FailureKind.CRASH),
        ("[ERROR] Cannot find weight info for model.layers.0.mlp.", FailureKind.CRASH),
        ("", FailureKind.CRASH),
    ],
)
def test_texts_of_each_class(text: str, kind: FailureKind) -> None:
    """The engine's text decides, wherever in the log it stands."""
    assert classify(text, -9).kind is kind
    assert classify(f"[2026-11-30 07:00:00] before\n{text}\nafter\n", -9).kind is kind


def test_a_specific_text_comes_before_a_general_one() -> None:
    """A refused host pool ends in a killed scheduler; the refusal is the reason."""
    log = "RuntimeError: (exit code: -9)\nNCCL WARN something\nNot enough host memory available. Requesting 9 GB\n"
    assert classify(log, -9).kind is FailureKind.HOST_MEMORY_REFUSED


def test_an_oom_under_load_is_a_class_of_its_own() -> None:
    """Only an out-of-memory error changes its class when it came under load."""
    assert classify(OOM, -9, under_load=True).kind is FailureKind.GPU_OOM_UNDER_LOAD
    assert classify("watchdog timeout", -9, under_load=True).kind is FailureKind.HANG


def test_what_was_seen_from_outside_is_said_when_the_log_says_nothing() -> None:
    """The observation stands in for missing words, and never before the engine's own."""
    assert classify("nothing", None, otherwise="no answer").said == "no answer"
    assert classify("nothing", None, otherwise="no answer").kind is FailureKind.CRASH
    assert classify(OOM, None, otherwise="no answer").said == OOM


def test_every_class_says_whom_to_blame_and_what_helps() -> None:
    """No class is without advice, and each is recognised by one rule at most."""
    assert set(ADVICE) == set(BLAME) == set(FailureKind)
    assert len({rule.kind for rule in RULES}) == len(RULES)


def test_the_sentence_says_class_code_words_and_advice() -> None:
    """The sentence is the message of both errors; what is not known is left out."""
    failure = Failure(FailureKind.KV_POOL_TOO_SMALL, "Not enough memory.", -9, ("last",))
    assert failure.sentence == (
        "the engine failed with kv_pool_too_small (exit code -9): Not enough memory.; "
        "what helps: a larger --mem-fraction-static"
    )
    assert str(LaunchFailed(failure)) == str(EngineLost(failure)) == failure.sentence
    assert LaunchFailed(failure).failure is EngineLost(failure).failure is failure
    silent = Failure(FailureKind.CRASH, "", None)
    assert silent.sentence == "the engine failed with crash; what helps: read the engine's log"
    assert silent.blame is Blame.MACHINE


def test_last_lines_say_something() -> None:
    """Empty lines do not count, long ones are cut, and only the last few are kept."""
    text = "\n".join([*(f"line {n}" for n in range(20)), "", "   ", "x" * 1000, "end  ", ""])
    assert last_lines(text, count=3) == ("line 19", "x" * 300, "end")
    assert last_lines("") == ()


@given(st.text(max_size=300), st.none() | st.integers(-64, 255), st.booleans())
def test_any_log_has_a_class(text: str, exit_code: int | None, under_load: bool) -> None:
    """No log, however garbled, breaks the classing."""
    failure = classify(text, exit_code, under_load=under_load)
    assert failure.sentence
    assert len(failure.said) <= 500


def test_no_pattern_has_an_open_start() -> None:
    """A pattern that may begin anywhere takes seconds on SGLang's line of arguments."""
    assert not [rule.pattern for rule in RULES if rule.pattern.startswith(".*") or "|.*" in rule.pattern]
