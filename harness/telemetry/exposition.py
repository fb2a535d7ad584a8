"""How metrics of our own get to Prometheus: over HTTP, or as a file for node_exporter's textfile collector."""

from __future__ import annotations

import json
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app, write_to_textfile
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

TARGETS_PATH = "/targets"
LAST_SCRAPE_S = 15.0
"""How long the end of a search waits for Prometheus, which would else never see the last trial."""


class Exposition(Collector):
    """Shows what `collect` yields, in a registry of its own; `start` serves it until `close`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._scraped_s: float | None = None
        """When the last scrape that has ended began, on the monotonic clock."""

    @abstractmethod
    def collect(self) -> Iterable[Metric]:
        """Yield every metric with its help; one whose value is unknown has no sample."""

    def targets(self) -> list[dict[str, object]]:
        """List what else should be scraped now, as Prometheus' HTTP service discovery reads it."""
        return []

    def start(self, port: int, host: str = "127.0.0.1") -> int:
        """Serve over HTTP and return the port, a free one for 0; raise ConfigError when it is taken."""
        try:
            server = make_server(host, port, self._app, _ThreadingServer, _SilentHandler)
        except OSError as problem:
            raise ConfigError(
                f"the metrics exporter cannot listen on {host}:{port} ({problem.strerror}); choose another port"
            ) from None
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self._server = server, thread
        return server.server_port

    def write_textfile(self, path: Path) -> None:
        """Write the text format, whole or not at all; raise StoreError when that is impossible."""
        try:
            write_to_textfile(str(path), self._registry)
        except OSError as problem:
            raise StoreError(
                f"{path}: the metrics cannot be written ({problem.strerror}); make its folder or name another"
            ) from None

    def wait_scraped(self, limit_s: float = LAST_SCRAPE_S) -> None:
        """Serve until what is shown now has been scraped, for `limit_s` at most; not at all when nobody scrapes."""
        now_s = time.monotonic()
        while self._scraped_s is not None and self._scraped_s < now_s and time.monotonic() < now_s + limit_s:
            time.sleep(0.05)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _app(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != TARGETS_PATH:
            began_s = time.monotonic()
            body: Iterable[bytes] = make_wsgi_app(self._registry)(environ, start_response)
            self._scraped_s = began_s
            return body
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(self.targets()).encode()]


def gauge(
    name: str, text: str, labels: Iterable[str], samples: Iterable[tuple[tuple[str, ...], float | None]]
) -> GaugeMetricFamily:
    """Make a gauge from `samples`, each with the values of its labels; None is unknown and has no sample."""
    family = GaugeMetricFamily(name, text, labels=list(labels))
    for values, value in samples:
        if value is not None:
            family.add_metric(list(values), value)
    return family


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a scrape is no news, and stderr belongs to the search."""
