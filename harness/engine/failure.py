"""Why an engine failed, read from its log and exit code, and what follows from it.

The exit code alone says little: SGLang kills its own process group, so -9 is also the code of a clean stop
(facts from source and from real runs; the texts are of 0.5.15 and 0.5.23).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import EngineError


class FailureKind(enum.StrEnum):
    """Classes of failure; each says by its rule below whether a retry makes sense and what to do."""

    BAD_FLAG = "bad_flag"
    MODEL_MISSING = "model_missing"
    PORT_IN_USE = "port_in_use"
    HOST_MEMORY_REFUSED = "host_memory"
    HOST_MEMORY_BUSY = "host_memory_busy"
    HOST_OOM_KILLED = "host_oom_killed"
    KV_POOL_TOO_SMALL = "kv_pool_too_small"
    GPU_OOM_AT_START = "gpu_oom"
    GRAPH_CAPTURE = "graph_capture"
    GPU_OOM_UNDER_LOAD = "gpu_oom_runtime"
    NCCL = "nccl"
    HANG = "server_hang"
    SLOW_START = "slow_start"
    FLUSH_FAILED = "flush_failed"
    CRASH = "crash"


class Blame(enum.Enum):
    """What is at fault, which decides how a search goes on."""

    SETTING = "the setting: infeasible, told to the sampler"
    MACHINE = "the machine or chance: tried once more before it counts against the setting"
    USER = "what the user gave: no setting can work, so the search stops"


@dataclass(frozen=True)
class Rule:
    """How a class is recognised, whom to blame, and what the user does."""

    kind: FailureKind
    pattern: str
    blame: Blame
    advice: str


CAME_UP = "The server is fired up and ready to roll!"
"""What fails behind this line failed under load, be it the warm-up's."""

# Patterns of whole lines start with ^: an open start would make the search quadratic in the length of a line,
# and SGLang prints its arguments as one line of 13,000 characters.
# The first match wins: a specific text stands before the general one that follows it in the same log.
RULES: Sequence[Rule] = (
    Rule(
        FailureKind.BAD_FLAG,
        r"^.*error: (?:argument |unrecognized arguments|ambiguous option|the following arguments).*",
        Blame.USER,
        "correct the flag for this SGLang version",
    ),
    Rule(
        FailureKind.HOST_MEMORY_REFUSED,
        r"Not enough host memory available.*|cudaHostRegister failed.*|No host memory is left for HiCache.*",
        Blame.SETTING,
        "a smaller host pool (--hicache-size or --hicache-ratio)",
    ),
    Rule(
        FailureKind.KV_POOL_TOO_SMALL,
        r"Not enough memory\. Please try to increase --mem-fraction-static.*"
        r"|Loaded weights leave no GPU memory for the KV cache.*",
        Blame.SETTING,
        "a larger --mem-fraction-static",
    ),
    Rule(
        FailureKind.GRAPH_CAPTURE,
        r"Capture .{0,30}graph failed.*",
        Blame.SETTING,
        "a smaller --mem-fraction-static, or smaller graphs (--cuda-graph-max-bs-decode)",
    ),
    Rule(
        FailureKind.GPU_OOM_AT_START,
        r"torch\.(?:cuda\.)?OutOfMemoryError.*|CUDA out of memory.*",
        Blame.SETTING,
        "a smaller --mem-fraction-static",
    ),
    Rule(
        FailureKind.PORT_IN_USE,
        r"^.*(?:address already in use|port at \d+ is not available).*",
        Blame.MACHINE,
        "another port; nothing that holds this one was touched",
    ),
    Rule(
        FailureKind.MODEL_MISSING,
        r"^.*(?:is not a local folder and is not a valid model identifier|Repo id must be in the form"
        r"|Can't load (?:the configuration|tokenizer)|Unrecognized model in|LocalEntryNotFoundError|gated repo"
        r"|Cannot find (?:any model weights|model module)|does not appear to have a file named config\.json).*",
        Blame.USER,
        "check --model: a folder with config.json, or a hub name that this machine can reach",
    ),
    Rule(FailureKind.HANG, r"^.*[Ww]atchdog timeout.*", Blame.MACHINE, "see the engine's log for the last batch"),
    Rule(FailureKind.NCCL, r"^.*NCCL (?:error|failure|WARN).*", Blame.MACHINE, "check the GPUs' interconnect"),
    Rule(
        FailureKind.HOST_OOM_KILLED,
        r"^.*(?:\(exit code: -9\)|crashed with exit code -9).*",
        Blame.SETTING,
        "a smaller host pool: the system ran out of memory",
    ),
)

CRASH_ADVICE = "read the engine's log"
ADVICE = {
    FailureKind.HOST_MEMORY_BUSY: "free the memory that other programs hold, then resume",
    FailureKind.SLOW_START: "allow more time with --ready-timeout, or look at the last lines of the log",
    FailureKind.FLUSH_FAILED: "run again; if it repeats, the engine keeps requests in flight",
    FailureKind.GPU_OOM_UNDER_LOAD: "a smaller --mem-fraction-static: it started, but load needs more",
    FailureKind.CRASH: CRASH_ADVICE,
} | {rule.kind: rule.advice for rule in RULES}
BLAME = {
    FailureKind.HOST_MEMORY_BUSY: Blame.MACHINE,
    FailureKind.SLOW_START: Blame.MACHINE,
    FailureKind.FLUSH_FAILED: Blame.MACHINE,
    FailureKind.GPU_OOM_UNDER_LOAD: Blame.SETTING,
    FailureKind.CRASH: Blame.MACHINE,
} | {rule.kind: rule.blame for rule in RULES}


@dataclass(frozen=True)
class Failure:
    """One failure of an engine, classed."""

    kind: FailureKind
    said: str
    """The engine's own words that decided the class; empty when it said nothing."""
    exit_code: int | None
    last_lines: tuple[str, ...] = ()

    @property
    def blame(self) -> Blame:
        """Say what is at fault."""
        return BLAME[self.kind]

    @property
    def sentence(self) -> str:
        """Say in one sentence what happened and what to do."""
        said = f": {self.said}" if self.said else ""
        code = f" (exit code {self.exit_code})" if self.exit_code is not None else ""
        return f"the engine failed with {self.kind.value}{code}{said}; what helps: {ADVICE[self.kind]}"


class LaunchFailed(EngineError):
    """Raised when the engine did not get ready; `failure` says why and whom to blame."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


class EngineLost(EngineError):
    """Raised when the engine died or stopped answering while it was measured."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


def classify(log_text: str, exit_code: int | None, *, under_load: bool = False, otherwise: str = "") -> Failure:
    """Class the failure of an engine from its whole log and the exit code of its leader.

    `otherwise` is what was seen from outside, for a log that says nothing.
    """
    kind, said = FailureKind.CRASH, otherwise
    for rule in RULES:
        if found := re.search(rule.pattern, log_text, re.MULTILINE):
            kind, said = rule.kind, found.group(0).strip()
            break
    if kind is FailureKind.GPU_OOM_AT_START and (under_load or CAME_UP in log_text.partition(said)[0]):
        kind = FailureKind.GPU_OOM_UNDER_LOAD
    return Failure(kind, said[:500], exit_code, last_lines(log_text))


def last_lines(log_text: str, count: int = 8) -> tuple[str, ...]:
    """Return the last lines that say something, each cut to a readable length."""
    lines = [line.rstrip()[:300] for line in log_text.splitlines() if line.strip()]
    return tuple(lines[-count:])
