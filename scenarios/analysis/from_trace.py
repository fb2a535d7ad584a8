"""From a recorded trace to the stream that analysis counts on."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from scenarios.analysis.keys import Keys, block_keys, seed_of
from scenarios.analysis.load import Load
from scenarios.analysis.pages import History, PagedRequest, Unknown, pages_stream
from scenarios.analysis.stream import MAX_BLOCKS, AccessStream, StreamCollector, stream_of
from scenarios.analysis.text import TEMPLATE_IDS, Encode
from scenarios.analysis.timing import Assumptions, Seconds, played
from scenarios.trace import Clock, Message, Scope, Trace, TraceInfo, TraceRequest

BATCH_REQUESTS = 1024
"""Requests that numpy sees at a time: enough to make its calls cheap, too few to take memory."""
LOW_64_BITS = 2**64 - 1


def load_of_trace(
    trace: Trace,
    *,
    assumed: Assumptions,
    page_tokens: int,
    encode: Encode | None = None,
    max_blocks: int = MAX_BLOCKS,
) -> Load:
    """Read `trace` once, as a stream, and return what it asks of a cache.

    Blocks are the trace's own where it has any; otherwise text is cut into pages of `page_tokens`, which needs
    `encode`. A trace with neither gives a load whose blocks are not known. Raise ScenarioError for an empty trace, and
    what its reader raises.
    """
    by_ids = trace.info.block_tokens is not None
    watch = _Watch(trace.info, assumed)
    requests = watch.watched(trace.requests())
    collector = StreamCollector(max_blocks)
    parts = _by_ids(requests, trace.info, watch) if by_ids else _by_text(requests, watch, page_tokens, encode)
    for part in parts:
        collector.add(part)
    stream = collector.joined()
    at_s, order_is_recorded = watch.times()
    scope_known = trace.info.scope is not Scope.LOCAL
    return Load(
        source=f"{trace.info.format} trace",
        stream=stream.timed(at_s),
        sessions_known=trace.info.sessions_recorded or trace.info.sessions_inferred,
        others_known=scope_known,
        times="recorded" if order_is_recorded else "simulated",
        unknown="" if by_ids else _why_unknown(watch.has_text, encode is not None),
        notes=(
            *watch.notes(),
            *_block_notes(trace.info, stream),
            *(f"Reading: {sentence}." for sentence in trace.report.sentences()),
        ),
    )


def _why_unknown(has_text: bool, has_tokenizer: bool) -> str:
    if has_text and has_tokenizer:
        return ""
    if has_text:
        return "the source is text, and no tokenizer cuts it into blocks; name the model (--model)"
    return "the source has neither block ids nor text, so nothing is known of what prompts share"


def _block_notes(info: TraceInfo, stream: AccessStream) -> Iterator[str]:
    if info.sessions_inferred:
        yield "Sessions are inferred from what prompts share; the source does not name them."
    if info.block_tokens is not None:
        yield f"Blocks of {info.block_tokens} tokens as recorded, prompts alone: replies are not in the trace."
        if info.scope is Scope.LOCAL:
            yield "Block ids are numbered in each session anew: what sessions share does not show; they may hit more."
    elif stream.lookups.any():
        yield f"Text in pages of {stream.block_tokens} tokens, with {len(TEMPLATE_IDS)} for the template of a message."


class _Watch:
    """Takes down of each request what its blocks do not tell: its session, its time, whether it has text."""

    def __init__(self, info: TraceInfo, assumed: Assumptions) -> None:
        self._info = info
        self._assumed = assumed
        self._numbers: dict[str, int] = {}
        self._last_at_s: dict[int, float | None] = {}
        self._session = array("q")
        self._seconds = array("d")
        """Times on the trace's clock, or pauses since the session's request before."""
        self._untimed = 0
        self.has_text = False

    def number(self, session_id: str) -> int:
        return self._numbers[session_id]

    def watched(self, requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
        """Take down the time of each request that passes."""
        for request in requests:
            number = self._numbers.setdefault(request.session_id, len(self._numbers))
            self.has_text = self.has_text or bool(request.messages)
            self._session.append(number)
            self._seconds.append(self._arrival_s(request) if self._recorded else self._gap_s(number, request))
            yield request

    def times(self) -> tuple[Seconds, bool]:
        """Return when each request begins, and whether that was recorded."""
        seconds = np.frombuffer(self._seconds, np.float64)
        if self._recorded:
            return seconds, True
        rng = np.random.default_rng(self._assumed.seed)
        order = rng.permutation(len(self._numbers)).tolist()
        starts_s = rng.uniform(0, self._assumed.start_within_s, self._assumed.users).tolist()
        session = np.frombuffer(self._session, np.int64)
        return played(session, seconds, self._assumed.service_s, order, starts_s), False

    def notes(self) -> Iterator[str]:
        """Say what was assumed."""
        assumed = self._assumed
        if self._recorded:
            if self._untimed:
                yield f"{self._untimed} request(s) without a time were put at the time of the one before."
            return
        source = "pauses and service times as recorded" if self._info.clock is Clock.SESSION else "no times recorded"
        yield (
            f"Times are simulated: {assumed.users} users play the sessions back to back in a random order (seed "
            f"{assumed.seed}), beginning within {assumed.start_within_s:g} s; {source}, a service time of "
            f"{assumed.service_s:g} s and a pause of {assumed.think_s:g} s where unknown, pauses cut at "
            f"{assumed.think_limit_s:g} s."
        )

    @property
    def _recorded(self) -> bool:
        return self._info.clock is Clock.TRACE

    def _arrival_s(self, request: TraceRequest) -> float:
        if request.at_s is not None:
            return request.at_s
        self._untimed += 1
        return self._seconds[-1] if self._seconds else 0.0

    def _gap_s(self, number: int, request: TraceRequest) -> float:
        is_first, last_at_s = number not in self._last_at_s, self._last_at_s.get(number)
        self._last_at_s[number] = request.at_s
        if is_first:
            return 0.0
        assumed, think_s = self._assumed, request.think_s
        if request.at_s is None or last_at_s is None:
            pause_s = assumed.think_s if think_s is None else think_s
            return assumed.service_s + min(pause_s, assumed.think_limit_s)
        between_s = max(0.0, request.at_s - last_at_s)
        if think_s is None:
            return min(between_s, assumed.service_s + assumed.think_limit_s)
        return max(0.0, between_s - think_s) + min(think_s, assumed.think_limit_s)


def _by_ids(requests: Iterable[TraceRequest], info: TraceInfo, watch: _Watch) -> Iterator[AccessStream]:
    for batch in _batches(requests):
        ids = array("Q")
        for request in batch:
            try:
                ids.extend(request.block_ids)
            except OverflowError:  # a negative id, or one of more than 64 bits; some of this request's may be in
                del ids[sum(len(each.block_ids) for each in batch[: batch.index(request)]) :]
                ids.extend(number & LOW_64_BITS for number in request.block_ids)
        local = info.scope is Scope.LOCAL
        lengths = np.array([len(request.block_ids) for request in batch])
        seeds = np.array([seed_of(request.session_id) if local else 0 for request in batch], np.uint64)
        block_tokens = info.block_tokens or 1
        prompts = [request.input_tokens or len(request.block_ids) * block_tokens for request in batch]
        keys = block_keys(np.frombuffer(ids, np.uint64), lengths, seeds) if ids else np.empty(0, np.uint64)
        yield _stream(batch, watch, block_tokens, prompts, lengths.tolist(), keys)


def _by_text(
    requests: Iterable[TraceRequest], watch: _Watch, page_tokens: int, encode: Encode | None
) -> Iterator[AccessStream]:
    """Cut what conversations say into pages; a request without text has its recorded length and no block."""
    histories: defaultdict[int, dict[int, History]] = defaultdict(dict)
    unknown = Unknown()
    for batch in _batches(requests):
        if encode is None or not any(request.messages for request in batch):
            prompts = [request.input_tokens or 0 for request in batch]
            yield _stream(batch, watch, page_tokens, prompts, [0] * len(batch), np.empty(0, np.uint64))
            continue
        paged = []
        for request in batch:
            number = watch.number(request.session_id)
            before = request.turn - 1 if request.after is None else request.after
            prompt = histories[number].get(before, History(page_tokens))
            for message in request.messages:
                prompt = _said(prompt, message, encode)
            reply_ids = unknown.ids(request.output_tokens or 0) if request.reply is None else encode(request.reply.text)
            cached = prompt.extended(TEMPLATE_IDS).extended(reply_ids)
            histories[number][request.turn] = cached
            paged.append(PagedRequest(0.0, number, prompt, cached))
        yield pages_stream(paged, page_tokens)


def _said(history: History, message: Message, encode: Encode) -> History:
    return history.extended(TEMPLATE_IDS).extended(encode(message.text))


def _stream(
    batch: list[TraceRequest], watch: _Watch, block_tokens: int, prompts: list[int], lengths: list[int], keys: Keys
) -> AccessStream:
    numbers = [watch.number(request.session_id) for request in batch]
    return stream_of(block_tokens, [0.0] * len(batch), numbers, prompts, lengths, lengths, keys)


def _batches(requests: Iterable[TraceRequest]) -> Iterator[list[TraceRequest]]:
    batch: list[TraceRequest] = []
    for request in requests:
        batch.append(request)
        if len(batch) == BATCH_REQUESTS:
            yield batch
            batch = []
    if batch:
        yield batch
