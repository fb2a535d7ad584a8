"""Control calls against a small real HTTP server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest

from harness.engine.client import EngineClient
from harness.engine.failure import EngineLost, FailureKind
from harness.errors import EngineUnreachable
from tests.support.cases import case_rows, expected

Answer = tuple[int, str]


@dataclass
class Server:
    """Answers each request with what `answer` says of its path and of how often it was asked."""

    answer: Callable[[str, int], Answer] = lambda _path, _count: (200, "{}")
    asked: list[tuple[str, str, Any, int]] = field(default_factory=list)
    """Method, path, body, and monotonic nanoseconds."""
    url: str = ""

    def times_ns(self, path: str) -> list[int]:
        """When this path was asked for."""
        return [at_ns for _, asked, _, at_ns in self.asked if asked == path]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on loopback, in a thread."""
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            made.asked.append((self.command, self.path, body, time.monotonic_ns()))
            status, text = made.answer(self.path, len(made.times_ns(self.path)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = respond

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        made.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        http.shutdown()
        thread.join()


@pytest.fixture
def client(server: Server) -> Iterator[EngineClient]:
    """A client of the server."""
    made = EngineClient(server.url)
    yield made
    made.close()


@pytest.fixture
def nobody() -> Iterator[EngineClient]:
    """A client of a port at which nobody listens."""
    made = EngineClient("http://127.0.0.1:1")
    yield made
    made.close()


@pytest.mark.contract
def test_a_flush_is_tried_until_it_is_done(server: Server, client: EngineClient) -> None:
    """Case 43: 400 means that something is in flight; it is tried again after a pause, and the tries are counted."""
    rows, case = case_rows("43", "flush.jsonl"), expected("43")
    server.answer = lambda _, count: (rows[count - 1]["status"], rows[count - 1]["body"])
    assert client.flush_cache() == case["attempts"]
    assert {(method, path) for method, path, *_ in server.asked} == {("POST", "/flush_cache")}
    pauses_ms = [(after - before) / 1e6 for before, after in pairwise(server.times_ns("/flush_cache"))]
    assert min(pauses_ms) >= case["spaced_ms_at_least"]


def test_a_flush_that_is_always_refused(server: Server, client: EngineClient) -> None:
    """After the limit the trial has failed with a class of its own: it would start warm."""
    server.answer = lambda *_: (400, "busy")
    with pytest.raises(EngineLost, match=r"refused for 0\.1 s; the trial would start warm") as lost:
        client.flush_cache(limit_s=0.1, pause_s=0.02)
    assert lost.value.failure.kind is FailureKind.FLUSH_FAILED
    assert len(server.asked) >= 2


def test_a_flush_of_a_dead_engine_is_no_refusal(nobody: EngineClient) -> None:
    """When nobody answers any more it is not tried again, and the log will say why."""
    with pytest.raises(EngineUnreachable, match="did not answer /flush_cache"):
        nobody.flush_cache()


def test_health_is_a_status_of_200(server: Server, client: EngineClient, nobody: EngineClient) -> None:
    """503 while it starts, or nobody there, is not healthy."""
    assert client.healthy()
    server.answer = lambda *_: (503, "")
    assert not client.healthy()
    assert not client.generates()
    assert not nobody.healthy()


def test_generating_asks_for_one_token(server: Server, client: EngineClient) -> None:
    """A token is really generated, on the engine's own endpoint."""
    assert client.generates()
    method, path, body, _ = server.asked[0]
    assert (method, path, body["sampling_params"]["max_new_tokens"]) == ("POST", "/generate", 1)


def test_a_change_is_asked_for_in_the_engine_s_words(server: Server, client: EngineClient) -> None:
    """The body is as in SGLang's own example; an engine that knows no changes is no engine that took them."""
    client.change({"pp-max-micro-batch-size": 8})
    method, path, body, _ = server.asked[0]
    assert (method, path, body) == ("POST", "/set_internal_state", {"server_args": {"pp_max_micro_batch_size": 8}})
    server.answer = lambda *_: (404, "")
    with pytest.raises(EngineUnreachable, match="does not change pp-max-micro-batch-size while it runs"):
        client.change({"pp-max-micro-batch-size": 4})


def test_warm_up_prompts_share_no_prefix(server: Server, client: EngineClient) -> None:
    """Each prompt has the asked length and begins with another token, so that none is served from a cache."""
    client.warm_up(requests=3, prompt_tokens=50)
    prompts = [body["input_ids"] for _, _, body, _ in server.asked]
    assert [len(prompt) for prompt in prompts] == [50, 50, 50]
    assert len({prompt[0] for prompt in prompts}) == 3


def test_a_warm_up_that_is_not_answered(server: Server, client: EngineClient) -> None:
    """The message says where and how long the prompt was."""
    server.answer = lambda *_: (500, "")
    with pytest.raises(EngineUnreachable, match="did not answer a warm-up of 50 tokens"):
        client.warm_up(requests=1, prompt_tokens=50)


def test_idle_is_when_the_counters_stand_still(server: Server, client: EngineClient) -> None:
    """The token counters decide; a gauge, or the counter of requests for the scrape itself, does not."""

    def metrics(_: str, count: int) -> Answer:
        return 200, (
            f'sglang:generation_tokens_total{{tp_rank="0"}} {min(count, 4)}.0\n'
            f"sglang:num_running_reqs {count}.0\nsglang:http_requests_total {count}.0\n"
        )

    server.answer = metrics
    client.wait_idle(pause_s=0.01)
    assert len(server.asked) == 5


def test_a_busy_engine_is_left_after_the_limit(server: Server, client: EngineClient) -> None:
    """Counters that never stand still do not hold the trial for ever."""
    server.answer = lambda _, count: (200, f"sglang:prompt_tokens_total {count}.0\n")
    client.wait_idle(limit_s=0.1, pause_s=0.01)
    assert len(server.asked) >= 2


def test_what_the_engine_says_is_returned(server: Server, client: EngineClient) -> None:
    """Server info is its JSON, metrics are its text."""
    server.answer = lambda path, _: (200, '{"max_total_num_tokens": 7}' if path == "/server_info" else "a 1\n")
    assert client.server_info() == {"max_total_num_tokens": 7}
    assert client.metrics_text() == "a 1\n"


def test_no_answer_names_the_call(server: Server, client: EngineClient, nobody: EngineClient) -> None:
    """A refused status and a closed port are told apart by the message."""
    server.answer = lambda *_: (404, "")
    with pytest.raises(EngineUnreachable, match=f"{server.url} answered /metrics with 404"):
        client.metrics_text()
    with pytest.raises(EngineUnreachable, match=r"did not answer /server_info: .*refused"):
        nobody.server_info()
