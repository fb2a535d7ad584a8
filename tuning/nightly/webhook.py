"""Tells a chat or a program how the night ended. The address is a secret: no message and no log shows any of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import httpx
import orjson
from tenacity import (
    RetryCallState,
    RetryError,
    Retrying,
    retry_any,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
)
from tenacity.wait import wait_exponential_jitter

from harness.errors import HicacheTuneError
from harness.telemetry.nightly_exporter import Measured
from tuning.nightly.words import NightSummary

SCHEMA_VERSION = 1
"""Of the generic JSON. 1: the fields of NightSummary."""
TIMEOUT_S = 10.0
LONGEST_WAIT_S = 60.0
"""Whoever asks to be tried later than this is not tried again."""

_NO_ANSWER = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)
_LOGS_WITH_ADDRESS = ("httpx", "httpcore.connection")
_MARKS: Mapping[str, str] = {"good": ":white_check_mark:", "regression": ":rotating_light:", "skipped": ":zzz:"}
_backoff = wait_exponential_jitter(max=LONGEST_WAIT_S)


class WebhookError(HicacheTuneError):
    """Raised when the webhook did not take the message; the night and its results are what they were."""


def send(url: str, summary: NightSummary, *, kind: Literal["json", "slack"], attempts: int = 4) -> None:
    """Post the night to `url`; raise WebhookError when it is not taken, after `attempts` tries at most.

    Tried again are no answer, 408, 429 and 5xx: after what `Retry-After` asks for, else after 1, 2, 4 ... seconds and
    up to one more. An answer can get lost, so a message can come twice; its `study` tells.
    """
    content = orjson.dumps(_for_slack(summary) if kind == "slack" else _for_programs(summary), default=_as_json)
    tries = Retrying(
        stop=stop_after_attempt(attempts),
        wait=_wait_s,
        retry=retry_any(retry_if_exception_type(_NO_ANSWER), retry_if_result(_may_be_taken_later)),
        reraise=True,
    )
    try:
        with _addresses_kept_out_of_logs(), httpx.Client(timeout=TIMEOUT_S) as client:
            answer = _post(tries, client, url, content)
    except _NO_ANSWER as problem:
        raise WebhookError(
            f"the webhook gave no answer ({type(problem).__name__}, {_count(tries)}); "
            "check its address, and the network and proxy of this machine"
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL):
        raise WebhookError("the webhook's address is not one of http:// or https://; correct it") from None
    if not answer.is_success:
        raise WebhookError(
            f"the webhook refused the message ({answer.status_code}{_error_word(answer, url)}, {_count(tries)}); "
            "check its address and whether it takes this kind of message"
        )


def _post(tries: Retrying, client: httpx.Client, url: str, content: bytes) -> httpx.Response:
    try:
        return tries(client.post, url, content=content, headers={"Content-Type": "application/json"})
    except RetryError as problem:
        answer: httpx.Response = problem.last_attempt.result()
        return answer


def _for_programs(summary: NightSummary) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **vars(summary)}


def _as_json(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _for_slack(summary: NightSummary) -> dict[str, str]:
    """Use `text` alone: what else there is, such as blocks, only Slack itself shows."""
    night = summary.night
    lines = [
        f"{_MARKS.get(night.outcome, ':warning:')} *{_plain(summary.job)}*: {night.outcome}"
        + (f" ({night.cause})" if night.cause else ""),
        _plain(summary.sentence),
        *(_measured(role, each) for role, each in _roles(summary) if each is not None),
    ]
    conditions = ", ".join(f"{name} {value}" for name, value in night.environment.items())
    for name, what in (("Proposal", summary.proposal), ("Report", summary.report), ("Conditions", conditions)):
        if what:
            lines.append(f"{name}: {_plain(str(what))}")
    return {"text": "\n".join([*lines, f"Study: {_plain(summary.study)}"])}


def _roles(summary: NightSummary) -> tuple[tuple[str, Measured | None], ...]:
    night = summary.night
    return ("Production", night.production), ("Winner", night.winner), ("Baseline", night.baseline)


def _measured(role: str, measured: Measured) -> str:
    interval = ""
    if measured.low_s is not None and measured.high_s is not None:
        interval = f" ({measured.low_s:.3g} to {measured.high_s:.3g} s)"
    return f"{role}: TTFT P99 {measured.ttft_p99_s:.3g} s{interval}, `{_plain(measured.setting)}`"


def _plain(text: str) -> str:
    """Escape what Slack takes for markup of its own, such as a mention of everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _may_be_taken_later(answer: httpx.Response) -> bool:
    passing = answer.status_code in (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS)
    return (passing or answer.is_server_error) and (_retry_after_s(answer) or 0) <= LONGEST_WAIT_S


def _wait_s(state: RetryCallState) -> float:
    asked_s = None
    if state.outcome is not None and not state.outcome.failed:
        asked_s = _retry_after_s(state.outcome.result())
    return _backoff(state) if asked_s is None else asked_s


def _retry_after_s(answer: httpx.Response) -> float | None:
    """Read `Retry-After`, seconds or a date; None without one that can be read."""
    text = answer.headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]+", text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    # A date without a zone is in UTC, as all dates in HTTP are.
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _count(tries: Retrying) -> str:
    made = tries.statistics["attempt_number"]
    return "tried once" if made == 1 else f"tried {made} times"


def _error_word(answer: httpx.Response, url: str) -> str:
    """Return Slack's word for what is wrong, such as `no_service`; other texts could repeat the address."""
    word = answer.text.strip()
    return f" {word}" if re.fullmatch("[a-z]+(_[a-z]+)+", word) and word not in url else ""


@contextmanager
def _addresses_kept_out_of_logs() -> Iterator[None]:
    def drop(_record: logging.LogRecord) -> bool:
        return False

    loggers = [logging.getLogger(name) for name in _LOGS_WITH_ADDRESS]
    for logger in loggers:
        logger.addFilter(drop)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(drop)
