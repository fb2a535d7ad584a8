"""A webhook on loopback that answers as a test says, and keeps what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """One answer; status 0 closes the connection without any."""

    status: int = 200
    text: str = "ok"
    retry_after: str | None = None


@dataclass
class WebhookServer:
    """What came in, and what goes out: one answer for each request, the last one again and again."""

    url: str
    answers: Sequence[Answer]
    bodies: list[bytes] = field(default_factory=list)
    content_types: list[str] = field(default_factory=list)


@contextmanager
def webhook_server(*answers: Answer, path: str = "/services/T0/B0/s3cr3t") -> Iterator[WebhookServer]:
    """Listen on a free port for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = seen.answers[min(len(seen.bodies), len(seen.answers) - 1)]
            seen.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            seen.content_types.append(self.headers["Content-Type"])
            if answer.status == 0:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.text)))
            if answer.retry_after is not None:
                self.send_header("Retry-After", answer.retry_after)
            self.end_headers()
            self.wfile.write(answer.text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    seen = WebhookServer(f"http://127.0.0.1:{server.server_port}{path}", answers or (Answer(),))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
