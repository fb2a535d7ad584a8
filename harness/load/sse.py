"""Server-Sent Events by the WHATWG rules: bytes in, events out, however the bytes were split."""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"


class SseReader:
    """Reads one event stream; time is linear in its bytes, whatever the size of an event."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the line that is not ended yet
        self._data: list[str] = []  # data lines of the event that is not ended yet
        self._at_start = True
        self._after_cr = False

    def feed(self, data: bytes) -> list[str]:
        """Return the data of the events that `data` completes, in order."""
        if (plain := self._plain(data)) is not None:
            return plain
        if not data:
            return []
        if self._after_cr and data.startswith(b"\n"):  # a CRLF that was cut between two reads
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        events: list[str] = []
        # On bytes, splitlines knows CR, LF and CRLF only: U+2028 and its like stay inside their text.
        for piece in data.splitlines(keepends=True):
            self._line.append(piece)
            if piece.endswith((b"\r", b"\n")):
                self._end_line(events)
        return events

    def close(self) -> bool:
        """End the stream; True when it stopped inside an event, whose part is dropped as the rules say."""
        inside = bool(self._line or self._data)
        self._line.clear()
        self._data.clear()
        return inside

    def _plain(self, data: bytes) -> list[str] | None:
        """Read whole events of one line each, which is what nearly all reads of a token stream are; None is for others.

        It gives what `feed` would: the rules only differ for what is excluded here.
        """
        if self._line or self._data or self._at_start or b"\r" in data:
            return None
        if not (data.startswith(b"data: ") and data.endswith(b"\n\n")):
            return None
        events = data[6:-2].decode("utf-8", "replace").split("\n\ndata: ")
        if data.count(b"\n") != 2 * len(events):
            return None
        self._after_cr = False
        return events

    def _end_line(self, events: list[str]) -> None:
        line = b"".join(self._line).rstrip(b"\r\n")
        self._line.clear()
        if self._at_start:
            line = line.removeprefix(_BOM)
            self._at_start = False
        if line:
            self._field(line)
        elif self._data:
            events.append("\n".join(self._data))
            self._data.clear()

    def _field(self, line: bytes) -> None:
        """Keep a data line; comments and all other fields say nothing about a reply."""
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
