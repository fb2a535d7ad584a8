"""The load through stacks on gevent: `python -m tests.bench.load.greenlet_stacks STACK ...` (see `asks`)."""

import locust  # first of all imports: it replaces the blocking calls of the standard library by gevent's

# isort: split
import socket
import time
from urllib.parse import urlsplit

import gevent
from geventhttpclient.response import HTTPResponse
from locust import FastHttpUser, constant
from locust.env import Environment
from locust.exception import StopUser

from tests.bench.load.asks import CHAT, HEADERS, Ask, Task, play_as_told


def fasthttp(task: Task) -> None:
    """Locust's FastHttpUser, which reads by lines: its `read` waits until a buffer is full."""

    class StreamUser(FastHttpUser):  # type: ignore[misc]  # mypy is told to skip locust
        host = task.url
        wait_time = constant(0)

        @locust.task  # type: ignore[untyped-decorator]
        def play(self) -> None:
            for ask in task.asks():
                with self.client.post(CHAT, data=ask.body, headers=HEADERS, stream=True) as answer:
                    # Its own `readline` waits for CR LF, which no SGLang stream has: ask the response below it.
                    while line := answer._response.readline(b"\n"):
                        ask.hear(line)
                ask.end()
            raise StopUser

    runner = Environment(user_classes=[StreamUser]).create_local_runner()
    runner.start(task.streams, spawn_rate=task.streams)
    runner.spawning_greenlet.join()
    while runner.user_count:
        time.sleep(0.05)
    runner.quit()


def sockets(task: Task) -> None:
    """Plain sockets made cooperative by gevent: a switch of greenlets and a timer for every read."""

    def slot() -> None:
        there = urlsplit(task.url)
        with socket.create_connection((there.hostname, there.port)) as connection:
            for ask in task.asks():
                head = f"POST {CHAT} HTTP/1.1\r\nHost: {there.netloc}\r\nContent-Length: {len(ask.body)}\r\n\r\n"
                connection.sendall(head.encode() + ask.body)
                response = Response("POST")
                response.ask = ask
                while not response.message_complete:
                    connection.settimeout(60)
                    response.feed(connection.recv(65536))
                ask.end()

    gevent.joinall([gevent.spawn(slot) for _ in range(task.streams)], raise_error=True)


class Response(HTTPResponse):  # type: ignore[misc]  # mypy is told to skip geventhttpclient
    """Gives the body to a request as it comes."""

    ask: Ask

    def _on_body(self, data: bytes) -> None:
        self.ask.hear(bytes(data))


if __name__ == "__main__":
    play_as_told({"fasthttp": fasthttp, "sockets": sockets})
