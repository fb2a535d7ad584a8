"""What the load process is asked and what it answers: the files between it and the harness."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import Field, field_validator

from harness.errors import LoadError
from harness.load.record import Status
from scenarios.plan import Phase
from scenarios.strict import StrictModel

RECORDS_FILE = "requests.parquet"
OUTCOME_FILE = "load.json"
LOG_FILE = "load.log"
JOB_FILE = "load_job.json"

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
OWN_HEADERS = ("connection", "content-length", "content-type", "host", "transfer-encoding")
"""Headers that the request itself decides on."""

ModelT = TypeVar("ModelT", bound=StrictModel)
Seconds = Annotated[float, Field(gt=0)]


class ApiName(enum.StrEnum):
    """Which endpoint is played."""

    CHAT = "chat"
    """`/v1/chat/completions`, for plans of text."""
    GENERATE = "generate"
    """`/generate`, for plans of token ids."""


class Stopped(enum.StrEnum):
    """Why a load ended."""

    COMPLETE = "complete"
    """Every counted session has ended."""
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    """A signal came, or the harness went away."""
    ENGINE_LOST = "engine_lost"
    """Nothing accepts connections any more."""
    DIVERGED = "diverged"
    """Time to first token only grows: the engine does not sustain this load, and more of it would tell no more."""
    SLO_MISSED = "slo_missed"
    """So many requests have missed the service level that the P99 cannot meet it any more."""
    SURELY_WORSE = "surely_worse"
    """The P99 over the sessions played so far is surely above that of the rival, which played the same ones."""


class Timeouts(StrictModel):
    """How long a request may take; past one of these it is a time-out."""

    connect_s: Seconds = 5.0
    first_token_s: Seconds = 120.0
    """From sent; keep-alives do not extend it."""
    idle_s: Seconds = 60.0
    """Between two reads after the first token."""
    total_s: Seconds = 900.0


class Rival(StrictModel):
    """The best trial so far, which played the same plan."""

    trial: int
    requests_path: Path
    p99_s: float
    """TTFT P99 of its steady window."""


class Lost(StrictModel):
    """By how much a load was surely worse than its rival when it was stopped."""

    rival: int
    """The number of the rival's trial."""
    sessions: int
    """How many sessions both had played by then."""
    change: float
    """The P99 over these sessions relative to the rival's: 0.5 is half as long again."""
    change_low: float
    """The least that it surely is."""
    p99_s: float
    """What the P99 of the whole load would have been, in seconds: a guess for whoever proposes settings, no figure."""


class LoadJob(StrictModel):
    """One load: which plan to play against which engine."""

    base_url: str
    api: ApiName
    model: str
    plan_path: Path
    out_dir: Path
    limit_s: Seconds
    """The load is stopped after this long, whatever is running."""
    timeouts: Timeouts = Timeouts()
    ignore_eos: bool = True
    """Replies then have exactly the asked length, so that settings are compared over equal work."""
    absent_cache_means_zero: bool = False
    """The engine is known to report cached tokens by tier on the chat API, where it leaves zeros out."""
    refusals_before_lost: Annotated[int, Field(ge=1)] = 5
    api_key_env: str | None = None
    """The environment variable that holds the API key; the key itself is in no file."""
    headers: Mapping[str, str] = {}
    keep_alive: bool = True
    """Use a connection again after a whole response, as clients and routers do; else each request opens its own."""
    session_header: str | None = None
    """A header that carries the session's id, by which a router keeps a session on one engine: SGLang's own takes
    `X-SMG-Routing-Key`."""
    processes: Annotated[int, Field(ge=1)] = 1
    """Processes that play; with one it is the load process itself."""
    stop_when_diverging: bool = True
    """Stop a load whose time to first token only grows."""
    diverging_least_s: Seconds = 30.0
    """How long counted sessions are watched before that may be said."""
    slo_ttft_s: Seconds | None = None
    """Stop once the P99 of the counted turns cannot meet this time to first token any more."""
    rival: Rival | None = None
    """Stop once the P99 is surely worse than that of this trial."""

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no http:// or https:// address")
        return url

    @field_validator("headers")
    @classmethod
    def _are_safe(cls, headers: Mapping[str, str]) -> Mapping[str, str]:
        for name, value in headers.items():
            check_header_name(name)
            if not value.isprintable():
                raise ValueError(f"header {name!r} has a control character")
        return headers

    @field_validator("session_header")
    @classmethod
    def _is_safe(cls, name: str | None) -> str | None:
        if name is not None:
            check_header_name(name)
        return name

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a job file; raise LoadError when it is none."""
        return _read(cls, path)


class PhaseCounts(StrictModel):
    """What became of the turns of one phase."""

    phase: Phase
    ok: int = 0
    failed: int = 0
    timeout: int = 0
    cut: int = 0
    cancelled: int = 0
    not_played: int = 0
    """Turns never sent: their session failed earlier, or the load ended before them."""

    @property
    def sent(self) -> int:
        """Count the requests, however they ended."""
        return self.ok + self.failed + self.timeout + self.cut + self.cancelled

    def of(self, status: Status) -> int:
        """Count the requests that ended with `status`."""
        return int(getattr(self, status.value))


class ClientHealth(StrictModel):
    """Whether the client could have been the bottleneck: one load process, or the worst figures of several."""

    cpu_fraction: float
    """CPU time of the load process over wall time: 1.0 is one core."""
    lag_p99_ms: float
    lag_max_ms: float
    """How much later than asked the event loop woke a sleeper of 20 ms."""
    gc_pause_ms: float
    """Sum of the pauses of the garbage collector."""
    late_p99_ms: float | None = None
    late_max_ms: float | None = None
    """How much later than scheduled requests of idle users were sent; None when no request found its user idle."""

    @classmethod
    def worst(cls, clients: Sequence[ClientHealth]) -> ClientHealth:
        """Take the worst of each figure: any one process that is the bottleneck spoils the measurement."""
        worst: dict[str, float | None] = {}
        for name in cls.model_fields:
            known = [value for client in clients if (value := getattr(client, name)) is not None]
            worst[name] = max(known, default=None)
        return cls.model_validate(worst)


class LoadOutcome(StrictModel):
    """How one load went; times are monotonic nanoseconds, as in the records."""

    schema_version: int = 1
    started_ns: int
    ended_ns: int
    started_at_utc: str
    stopped: Stopped
    counts: tuple[PhaseCounts, ...]
    clients: tuple[ClientHealth, ...]
    """One for each process that played."""
    lost: Lost | None = None
    """By how much it was worse than its rival; None unless that has stopped it."""
    locust_requests: int
    """Locust's own count, for display: it can be reset in the middle of a run, the records can not."""
    locust_version: str
    python_version: str

    @property
    def client(self) -> ClientHealth:
        """The worst figures of all processes."""
        return ClientHealth.worst(self.clients)

    def of(self, phase: Phase) -> PhaseCounts:
        """Return the counts of `phase`."""
        return next((c for c in self.counts if c.phase is phase), PhaseCounts(phase=phase))

    @property
    def sent(self) -> int:
        """Count all requests."""
        return sum(c.sent for c in self.counts)

    @property
    def turns_not_played(self) -> int:
        """Count the turns of counted sessions that were never sent."""
        return self.of(Phase.COUNTED).not_played

    @property
    def locust_was_reset(self) -> bool:
        """Whether Locust's statistics lost requests that the records have."""
        return self.locust_requests != self.sent

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an outcome file; raise LoadError when it is none."""
        return _read(cls, path)


class LoadProgress(StrictModel):
    """Where a running load is; `done`, `of` and `failed` are turns of counted sessions."""

    done: int
    of: int
    failed: int
    in_flight: int
    ttft_p50_ms: float | None
    """Of the latest counted replies, from their scheduled time."""
    silent_s: float = 0.0
    """For how long requests have been in flight and no token has come to any of them, of whatever phase."""


def _read(model: type[ModelT], path: Path) -> ModelT:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise LoadError(f"{path}: cannot be read ({str(problem).splitlines()[0]}); run the load again") from None


def check_header_name(name: str) -> None:
    """Raise ValueError when requests cannot carry a header of this name."""
    if name.lower() == "authorization":
        raise ValueError("put the key in an environment variable and name it in `api_key_env`")
    if name.lower() in OWN_HEADERS:
        raise ValueError(f"header {name!r} belongs to the request itself; choose another name")
    if not HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a header; use letters, digits and dashes")
