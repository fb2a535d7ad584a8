"""Every source keeps one promise: it answers or says why it cannot, and it can be closed twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from harness.errors import TelemetryError
from harness.telemetry import MetricsSource, Scrape, Source, Unavailable, open_nvml
from harness.telemetry.sources import EngineProcesses, HostSource, ProcessSource
from tests.support.fake_nvml import FakeGpu, FakeNvml

NO_SUCH_PID = 2**22 + 1
"""Above the largest pid that Linux gives."""


class Page:
    """A server on loopback that answers every path with `status` and `text`."""

    def __init__(self) -> None:
        page = self
        self.status, self.text = 200, "sglang:num_running_reqs 3\n"
        self.paths: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.paths.append(self.path)
                body = page.text.encode()
                self.send_response(page.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Stay quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def page() -> Iterator[Page]:
    """Serve a page while a test runs."""
    page = Page()
    thread = threading.Thread(target=page.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield page
    page.server.shutdown()
    page.server.server_close()
    thread.join()


Make = Callable[[Page, Path], Source[object]]


def lost_gpu(page: Page, root: Path) -> Source[object]:
    """Open a GPU, and lose it."""
    module = FakeNvml([FakeGpu("GPU-a")])
    nvml = open_nvml(module=module)
    module.gpus[0].lost = True
    return nvml


def broken_page(page: Page, root: Path) -> Source[object]:
    """Scrape a server that has no metrics."""
    page.status = 404
    return MetricsSource(page.url)


WORKING: dict[str, Make] = {
    "nvml": lambda page, root: open_nvml(module=FakeNvml([FakeGpu("GPU-a")])),
    "host": lambda page, root: HostSource(),
    "processes": lambda page, root: ProcessSource(lambda: [os.getpid()]),
    "metrics": lambda page, root: MetricsSource(page.url),
}
BROKEN: dict[str, Make] = {
    "nvml": lambda page, root: open_nvml(module=FakeNvml(init_error="NVMLError_LibraryNotFound")),
    "lost gpu": lost_gpu,
    "host": lambda page, root: HostSource(root),
    "processes": lambda page, root: ProcessSource(lambda: [NO_SUCH_PID]),
    "metrics": broken_page,
    "no server": lambda page, root: MetricsSource("http://127.0.0.1:9"),
    "unavailable": lambda page, root: Unavailable("switched off"),
}


@pytest.mark.parametrize("make", WORKING.values(), ids=WORKING.keys())
def test_a_source_that_works_answers_with_one_frozen_type(make: Make, page: Page, tmp_path: Path) -> None:
    """Readings are frozen dataclasses of one type, again and again."""
    source = make(page, tmp_path)
    first, second = source.read(), source.read()
    assert not isinstance(first, Unavailable)
    assert type(first) is type(second)
    assert is_dataclass(first)
    with pytest.raises(FrozenInstanceError):
        setattr(first, fields(first)[0].name, None)
    source.close()
    source.close()


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN.keys())
def test_a_source_that_cannot_answer_says_why(make: Make, page: Page, tmp_path: Path) -> None:
    """No exception and no zeros: a reason, again and again."""
    source = make(page, tmp_path)
    for _ in range(2):
        answer = source.read()
        assert isinstance(answer, Unavailable)
        assert answer.reason
        assert str(answer).startswith(answer.reason)
    source.close()
    source.close()


def test_processes_add_up_and_those_that_ended_do_not_count() -> None:
    """The sum is over the processes that still run."""
    reading = ProcessSource(lambda: [os.getpid(), NO_SUCH_PID]).read()
    assert isinstance(reading, EngineProcesses)
    assert reading.count == 1
    assert reading.rss_bytes > 0
    assert reading.cpu_s > 0
    assert reading.pids == (os.getpid(),)
    assert reading.major_faults is not None
    assert reading.locked_bytes is not None


def test_a_process_that_may_not_be_read_makes_the_sum_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving one out would show too little memory."""

    def denied(self: psutil.Process) -> object:
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "cpu_times", denied)
    answer = ProcessSource(lambda: [os.getpid()]).read()
    assert isinstance(answer, Unavailable)
    assert f"process {os.getpid()}" in answer.reason


def test_a_scrape_has_the_gauges_and_its_own_cost(page: Page) -> None:
    """One GET of /metrics gives the snapshot, the gauges and the time that it took."""
    source = MetricsSource(page.url + "/")
    scrape = source.scrape()
    source.close()
    assert isinstance(scrape, Scrape)
    assert page.paths == ["/metrics"]
    assert scrape.gauges.running_requests == 3
    assert scrape.scrape_s > 0


def test_a_proxy_of_the_environment_is_not_used(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine on loopback is asked directly."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    source = MetricsSource(page.url)
    assert isinstance(source.read(), Scrape)
    source.close()


@pytest.mark.parametrize(
    ("status", "text", "message"),
    [(404, "", r"answers 404; launch the engine with --enable-metrics"), (200, "<html>", "Prometheus text format")],
)
def test_an_engine_without_metrics_is_told_how_to_have_them(page: Page, status: int, text: str, message: str) -> None:
    """The sentence names the address and what to do."""
    page.status, page.text = status, text
    source = MetricsSource(page.url)
    with pytest.raises(TelemetryError, match=message):
        source.scrape()
    source.close()
