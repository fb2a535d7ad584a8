"""Control calls to a running engine. The measured load does not pass through here."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import httpx

from harness.engine.failure import EngineLost, Failure, FailureKind
from harness.errors import EngineUnreachable

PROBE_TIMEOUT_S = 30.0
"""SGLang's own /health may take 20 s while a long prefill runs; a shorter limit would call a good engine dead."""
WARM_UP_TIMEOUT_S = 300.0
"""The first long prompt on a GPU compiles kernels."""
SETTLING_COUNTERS = r"sglang:(?:prompt|generation|cached|load_back|evicted|hicache_backup)_tokens_total"


class EngineClient:
    """A small client of the engine's control endpoints."""

    def __init__(self, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        self.base_url = base_url
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=PROBE_TIMEOUT_S, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def healthy(self) -> bool:
        """Ask /health, which generates one token; False when it is not 200 or not reachable."""
        return self._succeeds("GET", "/health")

    def generates(self) -> bool:
        """Generate one token for real; False when that does not work."""
        body = {"text": "Hello", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        return self._succeeds("POST", "/generate", json=body)

    def warm_up(self, *, requests: int, prompt_tokens: int) -> None:
        """Send prompts of about the load's length, so that kernels are compiled before anything is measured."""
        for number in range(requests):
            ids = [10 + (number + 7 * position) % 1000 for position in range(prompt_tokens)]
            body = {
                "input_ids": ids,
                "sampling_params": {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True},
            }
            if not self._succeeds("POST", "/generate", json=body, timeout=WARM_UP_TIMEOUT_S):
                raise EngineUnreachable(
                    f"the engine at {self.base_url} did not answer a warm-up of {prompt_tokens} tokens"
                )

    def wait_idle(self, *, limit_s: float = 15.0, pause_s: float = 0.3) -> None:
        """Wait until the counters stand still between two reads; a busy engine is left after `limit_s`."""
        deadline = time.monotonic() + limit_s
        last = None
        while time.monotonic() < deadline:
            now = sorted(line for line in self.metrics_text().splitlines() if re.match(SETTLING_COUNTERS, line))
            if now == last:
                return
            last = now
            time.sleep(pause_s)

    def server_info(self) -> dict[str, Any]:
        """Read the effective flags and pool sizes."""
        return dict(self._get("/server_info").json())

    def change(self, values: Mapping[str, int | float]) -> None:
        """Ask the running schedulers to take other values of these flags; /server_info says whether they have."""
        body = {"server_args": {name.replace("-", "_"): value for name, value in values.items()}}
        if not self._succeeds("POST", "/set_internal_state", json=body):
            raise EngineUnreachable(f"the engine at {self.base_url} does not change {', '.join(values)} while it runs")

    def metrics_text(self) -> str:
        """Read /metrics."""
        return self._get("/metrics").text

    def flush_cache(self, *, limit_s: float = 30.0, pause_s: float = 0.5) -> int:
        """Empty device and host tiers; return the number of tries.

        The engine answers 400 while anything is in flight, for instance a write-through that has not ended.
        """
        deadline = time.monotonic() + limit_s
        tries = 1
        while self._request("POST", "/flush_cache").status_code != httpx.codes.OK:
            if time.monotonic() > deadline:
                said = f"/flush_cache was refused for {limit_s:g} s; the trial would start warm, so it was not measured"
                raise EngineLost(Failure(FailureKind.FLUSH_FAILED, said, None))
            tries += 1
            time.sleep(pause_s)
        return tries

    def _get(self, path: str) -> httpx.Response:
        response = self._request("GET", path)
        if response.status_code != httpx.codes.OK:
            raise EngineUnreachable(f"the engine at {self.base_url} answered {path} with {response.status_code}")
        return response

    def _succeeds(self, method: str, path: str, **arguments: Any) -> bool:
        try:
            return self._request(method, path, **arguments).status_code == httpx.codes.OK
        except EngineUnreachable:
            return False

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **arguments)
        except httpx.HTTPError as problem:
            said = str(problem) or type(problem).__name__
            raise EngineUnreachable(f"the engine at {self.base_url} did not answer {path}: {said}") from None
