"""The message of a night: what is in it, when it is tried again, and what never leaks."""

from __future__ import annotations

import json
import logging
import socket
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from types import MappingProxyType
from typing import Self

import pytest

from harness.telemetry.nightly_exporter import Measured, Night
from tests.support.webhook_server import Answer, webhook_server
from tuning.nightly.webhook import SCHEMA_VERSION, WebhookError, send
from tuning.nightly.words import NightSummary

SUMMARY = NightSummary(
    job="chat",
    study="chat-20261130",
    night=Night(
        outcome="regression",
        ended_at_s=1796007600.0,
        duration_s=3600.0,
        environment=MappingProxyType({"gpu": "H200", "driver": "570.1"}),
        winner=Measured("--page-size 64", 0.4123, 0.39, 0.43, MappingProxyType({"device": 1 << 30}), 0.8),
        production=Measured("--page-size 1", 0.61),
        change_ratio=0.2,
        cause="driver",
    ),
    sentence="TTFT P99 of <production> rose by 20 % & more.",
    exit_code=3,
    proposal=Path("results/chat-20261130/proposal.patch"),
    report=None,
    started_at=datetime(2026, 11, 30, 2, 0, tzinfo=UTC),
)


@pytest.fixture(autouse=True)
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Keep how long would have been waited before each further try, and wait for none of it."""
    waited: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", waited.append)
    return waited


def test_programs_get_every_field() -> None:
    """The generic JSON is the summary, by its own names, with a version."""
    with webhook_server() as server:
        send(server.url, SUMMARY, kind="json")
    (body,) = server.bodies
    sent = json.loads(body)
    assert server.content_types == ["application/json"]
    assert sent["schema_version"] == SCHEMA_VERSION
    assert sent.keys() - {"schema_version"} == NightSummary.__dataclass_fields__.keys()
    assert sent["night"].keys() == Night.__dataclass_fields__.keys()
    assert (sent["job"], sent["exit_code"], sent["report"]) == ("chat", 3, None)
    assert sent["proposal"] == "results/chat-20261130/proposal.patch"
    assert datetime.fromisoformat(sent["started_at"]) == SUMMARY.started_at
    assert sent["night"]["environment"] == {"gpu": "H200", "driver": "570.1"}
    assert sent["night"]["winner"]["headroom_bytes"] == {"device": 1 << 30}
    assert sent["night"]["baseline"] is None


def test_figures_that_are_no_numbers_are_null() -> None:
    """JSON has no NaN, and a receiver may not take one."""
    with webhook_server() as server:
        send(server.url, replace(SUMMARY, night=replace(SUMMARY.night, change_ratio=float("nan"))), kind="json")
    assert json.loads(server.bodies[0])["night"]["change_ratio"] is None


def test_slack_gets_text() -> None:
    """One text with outcome, cause, sentence, figures and files; nothing of it is markup of Slack's."""
    with webhook_server() as server:
        send(server.url, SUMMARY, kind="slack")
    assert json.loads(server.bodies[0]) == {
        "text": ":rotating_light: *chat*: regression (driver)\n"
        "TTFT P99 of &lt;production&gt; rose by 20 % &amp; more.\n"
        "Production: TTFT P99 0.61 s, `--page-size 1`\n"
        "Winner: TTFT P99 0.412 s (0.39 to 0.43 s), `--page-size 64`\n"
        "Proposal: results/chat-20261130/proposal.patch\n"
        "Conditions: gpu H200, driver 570.1\n"
        "Study: chat-20261130"
    }


@pytest.mark.parametrize("passing", [Answer(408), Answer(429), Answer(500), Answer(503), Answer(0)])
def test_what_passes_is_tried_again(passing: Answer, waits_s: list[float]) -> None:
    """A webhook that is down for a moment takes the message in the end; the waits grow, and differ a little."""
    with webhook_server(passing, passing, passing, Answer()) as server:
        send(server.url, SUMMARY, kind="slack")
    assert len(server.bodies) == 4
    assert len(set(server.bodies)) == 1
    assert [int(wait) >= least and wait <= least + 1 for wait, least in zip(waits_s, (1, 2, 4), strict=True)]
    assert any(wait not in (1, 2, 4) for wait in waits_s)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 410])
def test_what_does_not_pass_is_tried_once(status: int, waits_s: list[float]) -> None:
    """A wrong address does not get better."""
    with webhook_server(Answer(status)) as server, pytest.raises(WebhookError, match=rf"\({status}, tried once\)"):
        send(server.url, SUMMARY, kind="json")
    assert (len(server.bodies), waits_s) == (1, [])


def test_tries_come_to_an_end() -> None:
    """After the last try it says what the answer was."""
    with webhook_server(Answer(503)) as server, pytest.raises(WebhookError, match=r"\(503, tried 3 times\)"):
        send(server.url, SUMMARY, kind="json", attempts=3)
    assert len(server.bodies) == 3


class _FixedClock(datetime):
    """It is always noon."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """Tell the time."""
        return cls(2026, 11, 30, 12, 0, 0, tzinfo=tz)


@pytest.mark.parametrize(
    ("said", "waited_s"),
    [
        ("7", 7.0),
        ("Mon, 30 Nov 2026 12:00:45 GMT", 45.0),
        ("Mon, 30 Nov 2026 12:00:45 -0000", 45.0),
        ("Sun, 29 Nov 2026 12:00:00 GMT", 0.0),
        ("soon", pytest.approx(1.5, abs=0.5)),
        ("-3", pytest.approx(1.5, abs=0.5)),
    ],
)
def test_retry_after_is_heeded(
    said: str, waited_s: object, waits_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In seconds, as a date, as a date that has passed; what cannot be read is as if it were not there."""
    monkeypatch.setattr("tuning.nightly.webhook.datetime", _FixedClock)
    with webhook_server(Answer(429, retry_after=said), Answer()) as server:
        send(server.url, SUMMARY, kind="json")
    assert waits_s == [waited_s]


def test_nobody_is_waited_for_all_night(waits_s: list[float]) -> None:
    """Asked to come back in an hour, it does not come back sooner, nor wait: it gives up."""
    with webhook_server(Answer(429, retry_after="3600")) as server, pytest.raises(WebhookError, match="tried once"):
        send(server.url, SUMMARY, kind="json")
    assert waits_s == []


def test_slow_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes the connection and says nothing is given up."""
    monkeypatch.setattr("tuning.nightly.webhook.TIMEOUT_S", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(WebhookError, match="ReadTimeout, tried 2 times"),
    ):
        send(f"http://127.0.0.1:{silent.getsockname()[1]}/s3cr3t", SUMMARY, kind="json", attempts=2)


def test_slacks_own_words_are_passed_on() -> None:
    """`no_service` tells a user that the webhook was removed."""
    with webhook_server(Answer(404, "no_service")) as server, pytest.raises(WebhookError, match="404 no_service"):
        send(server.url, SUMMARY, kind="slack")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:{free_port}/services/s3cr3t",
        "s3cr3t",
        "ftp://s3cr3t/s3cr3t",
        "http://s3cr3t:port/s3cr3t",
        "http://[s3cr3t]/",
        "http://s3cr3t\n/",
        "",
    ],
)
def test_the_address_stays_secret_when_nothing_is_there(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the message, nor what it was raised from, nor a log has any part of it."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(WebhookError) as raised:
        send(address.replace("{free_port}", str(_free_port())), SUMMARY, kind="json", attempts=2)
    assert raised.value.__suppress_context__
    for shown in (str(raised.value), caplog.text):
        assert "s3cr3t" not in shown
        assert "127.0.0.1" not in shown


@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize("path", ["/sec_ret", "/services/sec_ret"])
def test_the_address_stays_secret_when_the_answer_repeats_it(
    status: int, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Some servers answer with the path that they do not know."""
    caplog.set_level(logging.DEBUG)
    words = [f"Cannot POST {path}", path, path.rpartition("/")[2]]
    for word in words:
        with webhook_server(Answer(status, word), path=path) as server:
            try:
                send(server.url, SUMMARY, kind="json")
                said = ""
            except WebhookError as problem:
                said = str(problem)
        assert bool(said) == (status != 200)
        for shown in (said, caplog.text):
            assert "sec_ret" not in shown
            assert "127.0.0.1" not in shown


def test_logs_work_again_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    """What silences the loggers is gone with the message."""
    caplog.set_level(logging.DEBUG)
    with webhook_server() as server:
        send(server.url, SUMMARY, kind="json")
    logging.getLogger("httpx").info("heard")
    assert "heard" in caplog.text
