"""Where one process plays its sessions: the users, what they play with, and the watch over this process.

Imports Locust, and so belongs to the load processes alone.
"""

from __future__ import annotations

import gc
import resource
import signal
from collections.abc import Mapping
from typing import Any

import gevent
from locust.env import Environment
from locust.runners import Runner

from harness.engine.api_key import api_key_headers
from harness.load.api import Api, ChatApi, GenerateApi
from harness.load.exchange import Talker
from harness.load.health import HealthMonitor
from harness.load.job import ApiName, LoadJob, Stopped
from harness.load.ledger import Ledger
from harness.load.player import Player, sleep_until
from harness.load.record import RequestRecord, Status
from harness.load.users import ArrivalUser, SlotUser
from harness.load.wire import Endpoint, Wire
from scenarios.errors import ScenarioError
from scenarios.plan import Plan

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TICK_S = 0.02
REPORT_S = 1.0
"""How often a process tells how it goes."""


class Stage:
    """Plays `plan`, which is the whole one or the share of this process."""

    def __init__(self, job: LoadJob, plan: Plan, *, is_whole: bool) -> None:
        self.plan = plan
        self.ledger = Ledger(plan, refusals_before_lost=job.refusals_before_lost, is_whole=is_whole)
        self.environment = Environment(user_classes=[SlotUser, ArrivalUser])
        self.health = HealthMonitor()
        self.crashes: list[BaseException] = []
        self.environment.events.user_error.add_listener(lambda exception, **_: self.crashes.append(exception))
        self._api = api_of(job)
        talker = Talker(
            self._api.path,
            Wire(Endpoint.of(job.base_url), keep_alive=job.keep_alive),
            headers_of(job),
            job.timeouts,
            self.ledger,
            self._tell_locust,
            job.session_header,
        )
        SlotUser.ledger = self.ledger
        SlotUser.player = ArrivalUser.player = Player(self._api, talker, self.ledger, self.health)
        self._told_master = 0
        self._runner: Runner | None = None
        self._arrivals: gevent.Greenlet | None = None
        _allow_connections()
        # The plan is large and lives until the end: out of the collector's sight it costs no pauses.
        gc.collect()
        gc.freeze()
        # Streams make garbage without cycles: at 1,000 of them this takes the worst pause from 12 to 3 ms.
        gc.set_threshold(10_000, 50, 1_000)

    def open(self, runner: Runner, started_ns: int) -> None:
        """Let the users in; the load counts as started at `started_ns`, which may be a moment ahead."""
        self._runner = runner
        self.environment.events.report_to_master.add_listener(self._on_locust_report)
        self.health.start()
        self.ledger.started_ns = started_ns
        if self.plan.concurrency is None:
            self._arrivals = gevent.spawn(self._let_in)
            self._arrivals.link_exception(lambda greenlet: self.crashes.append(greenlet.exception))
        else:
            for _ in range(self.plan.concurrency):
                SlotUser(self.environment).start(runner.user_greenlets)

    def close(self) -> None:
        """Send the users away: what is still running is recorded as cut. Raise what a user has stumbled over."""
        if self._arrivals is not None:
            self._arrivals.kill()
        if self._runner is not None:
            self._runner.quit()
        if self.crashes:
            raise self.crashes[0]

    def stop_when_told(self) -> None:
        """End the load on SIGTERM or SIGINT; what it has by then is kept."""
        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, self.ledger.stop, Stopped.INTERRUPTED)

    @property
    def locust_requests(self) -> int:
        """Locust's own count of requests."""
        return self._told_master + int(self.environment.stats.total.num_requests)

    def _let_in(self) -> None:
        """Make the user of each session when it is due, however many are there: only those that play cost anything."""
        for session in sorted(self.plan.sessions, key=lambda session: session.start_s):
            sleep_until(SlotUser.player.arrival_ns(session))
            if self.ledger.stopped is not None or self._runner is None:
                return
            ArrivalUser(self.environment, session).start(self._runner.user_greenlets)

    def _on_locust_report(self, data: Mapping[str, Any], **_: object) -> None:
        """A worker's count starts again whenever Locust has told the master of it, which it does every 3 s."""
        self._told_master += int(data["stats_total"]["num_requests"])

    def _tell_locust(self, record: RequestRecord) -> None:
        good = record.status in (Status.OK, Status.CANCELLED)
        self.environment.events.request.fire(
            request_type="POST",
            name=self._api.path,
            response_time=(record.end_ns - record.sent_ns) / 1e6,
            response_length=0,
            exception=None if good else record.error,
            context={},
        )


def check(job: LoadJob, plan: Plan) -> None:
    """Raise ScenarioError or ConfigError when `plan` cannot be played as `job` says."""
    api_of(job).check(plan)
    headers_of(job)
    for session in plan.sessions if job.session_header else ():
        if not (session.session_id.isascii() and session.session_id.isprintable()):
            raise ScenarioError(
                f"session {session.session_id!r}: its id cannot stand in the header {job.session_header}; "
                "name it with plain letters and digits"
            )


def api_of(job: LoadJob) -> Api:
    """Return the API that `job` plays."""
    if job.api is ApiName.CHAT:
        return ChatApi(job.model, job.ignore_eos, job.absent_cache_means_zero)
    return GenerateApi(job.ignore_eos)


def headers_of(job: LoadJob) -> Mapping[str, str]:
    """Return the headers of every request; raise ConfigError when the key that they need is not there."""
    plain = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    return {**plain, **job.headers, **api_key_headers(job.api_key_env)}


def _allow_connections() -> None:
    """One connection a user: the usual soft limit of 1,024 files would refuse the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
