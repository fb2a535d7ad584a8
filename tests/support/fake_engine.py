"""Stands in for an SGLang server in tests of the trial: it prints its log lines and answers its endpoints.

`python fake_engine.py --port N --metrics FILE [how it behaves]`. It measures nothing and computes nothing; what the
real engine does is checked by the live tests. Standard library only, as it runs alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LAUNCH_LINES = (
    "Load weight begin. avail mem=20.59 GB",
    "Load weight end. elapsed=0.12 s, type=Qwen2ForCausalLM",
    "Allocating 2.00 GB host memory for hierarchical KV cache.",
)
UP_LINES = ("INFO:     Uvicorn running on http://127.0.0.1", "The server is fired up and ready to roll!")
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
DEVICE_TOKENS, HOST_TOKENS = 100, 28


class Engine:
    """What the server counts and how it behaves."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.turns = 0
        self.flushes = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.replied = 0
        self.batch = options.pp_max_micro_batch_size
        self._lock = threading.Lock()

    def begin_turn(self) -> int:
        """Count one turn of the load; return its cached tokens. Turns after the last one find a death instead."""
        with self._lock:
            self.turns += 1
            doomed = self.options.die_after is not None and self.turns > self.options.die_after
            cached = 0 if self.turns == 1 and not self.options.warm else DEVICE_TOKENS + HOST_TOKENS
            if not doomed:
                self.prompt_tokens += 200
                self.cached_tokens += cached
        if doomed:
            while self.replied < self.options.die_after:  # what is counted as replied has been sent whole
                time.sleep(0.01)
            self.die()
        return cached

    def hangs(self) -> bool:
        """Whether it takes requests and answers none, as an engine whose scheduler is stuck."""
        return self.options.hang_after is not None and self.turns > self.options.hang_after

    def flush(self) -> bool:
        """Empty the caches, so that the next turn is cold; False while it is told to refuse."""
        self.flushes += 1
        is_busy = self.options.busy_after_load and self.turns > 0
        if is_busy or self.flushes <= self.options.refused_flushes:
            return False
        self.turns = 0
        return True

    def end_turn(self) -> None:
        """Count one turn as replied."""
        with self._lock:
            self.replied += 1

    def die(self) -> None:
        """Print the log of a death and end at once, as SIGKILL does."""
        say(self.options.last_words)
        os._exit(self.options.exit_code)

    def metrics(self) -> str:
        """Return a recorded scrape whose counters have grown by what was counted here."""
        text = Path(self.options.metrics).read_text(encoding="utf-8")
        text = _grown(text, r"sglang:prompt_tokens_total\{[^}]*\}", self.prompt_tokens)
        return _grown(text, r'sglang:cached_tokens_total\{cache_source="host"[^}]*\}', self.cached_tokens)


def _grown(text: str, series: str, by: int) -> str:
    return re.sub(rf"^({series}) (\S+)$", lambda m: f"{m[1]} {float(m[2]) + by}", text, flags=re.MULTILINE)


class Handler(BaseHTTPRequestHandler):
    """Answers like SGLang."""

    engine: Engine

    def do_GET(self) -> None:
        """Answer health, server info and metrics."""
        batch = {"pp_max_micro_batch_size": self.engine.batch}
        launched = {"pp_max_micro_batch_size": self.engine.options.pp_max_micro_batch_size, "internal_states": [batch]}
        info = {"max_total_num_tokens": 6144, "enable_hierarchical_cache": True, "page_size": 64, **launched}
        answers = {"/health": "", "/server_info": json.dumps(info), "/metrics": self.engine.metrics()}
        if self.path == "/health" and self.engine.hangs():
            self.answer(503, "")
        else:
            self.answer(200 if self.path in answers else 404, answers.get(self.path, ""))

    def do_POST(self) -> None:
        """Answer generation, flush and chat."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/flush_cache":
            self.answer(200 if self.engine.flush() else 400, "flushed or not")
        elif self.path == "/set_internal_state":
            if not self.engine.options.stubborn:
                self.engine.batch = json.loads(body)["server_args"]["pp_max_micro_batch_size"]
            self.answer(200, f"[{json.dumps(not self.engine.options.stubborn)}]")
        elif self.path == "/generate":
            if self.engine.options.die_in_warm_up and "input_ids" in json.loads(body):
                self.engine.die()
            self.answer(200, "{}")
        else:
            self.chat()

    def chat(self) -> None:
        """Stream three tokens."""
        cached = self.engine.begin_turn()
        if self.engine.hangs():
            time.sleep(600)
        time.sleep(self.engine.options.first_token_s)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for token in ("one ", "two ", "three"):
            self.event({"choices": [{"index": 0, "delta": {"content": token}}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        tiers = {"device": DEVICE_TOKENS, "host": HOST_TOKENS}
        if cached:
            self.event({"choices": [], "sglext": {"cached_tokens_details": tiers}})
        details = {"cached_tokens": cached} if cached else None
        usage = {"prompt_tokens": 200, "completion_tokens": 3, "prompt_tokens_details": details}
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.engine.end_turn()

    def event(self, chunk: dict[str, Any]) -> None:
        """Send one event."""
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def answer(self, status: int, text: str) -> None:
        """Send a whole reply."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing for each request."""


def say(*lines: str) -> None:
    """Print lines as the engine's log."""
    sys.stdout.write("".join(f"[2026-11-30 07:00:00] {line}\n" for line in lines))
    sys.stdout.flush()


def follow(scheduler: subprocess.Popen[bytes]) -> None:
    """Die when the scheduler does, as SGLang's leader."""
    scheduler.wait()
    say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Launch, and serve until SIGTERM."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--die-at-start", action="store_true")
    parser.add_argument("--die-in-warm-up", action="store_true")
    parser.add_argument("--die-after", type=int, help="turns of the load")
    parser.add_argument("--hang-after", type=int, help="turns of the load")
    parser.add_argument("--last-words", default="Segmentation fault")
    parser.add_argument("--exit-code", type=int, default=1)
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--refused-flushes", type=int, default=0)
    parser.add_argument("--busy-after-load", action="store_true", help="no flush is accepted any more")
    parser.add_argument("--first-token-s", type=float, default=0.0)
    parser.add_argument("--warm", action="store_true", help="the first turn finds cached tokens")
    parser.add_argument("--pp-max-micro-batch-size", type=int)
    parser.add_argument("--stubborn", action="store_true", help="nothing is changed while it runs")
    options, _setting = parser.parse_known_args()
    engine = Engine(options)
    scheduler = subprocess.Popen([sys.executable, "-c", CHILD, "fake::scheduler"])  # it does not end by itself
    threading.Thread(target=follow, args=[scheduler], daemon=True).start()
    say(*LAUNCH_LINES)
    if options.die_at_start:
        engine.die()
    if options.never_ready:
        time.sleep(600)
    Handler.engine = engine
    with ThreadingHTTPServer(("127.0.0.1", options.port), Handler) as server:
        say(*UP_LINES)
        server.serve_forever()


if __name__ == "__main__":
    main()
