"""Files that may be packed: read by content (gzip, xz), written by name (.gz), replaced whole."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from scenarios.trace import TraceError

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked when it is gzip or xz; raise TraceError, also for what goes wrong while reading."""
    try:
        with path.open("rb") as raw:
            magic = raw.peek(len(XZ))
            if magic.startswith(GZIP):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield cast(IO[bytes], unpacked)
            elif magic.startswith(XZ):
                with lzma.LZMAFile(raw) as unpacked_xz:
                    yield cast(IO[bytes], unpacked_xz)
            else:
                yield raw
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        raise TraceError(f"{path}: the packed file is cut short or damaged; fetch it again") from None
    except UnicodeDecodeError as problem:
        raise TraceError(f"{path}: not UTF-8 text ({problem.reason}); save it as UTF-8") from None
    except OSError as problem:
        raise TraceError(f"cannot read the trace {path}: {problem.strerror}; check the path") from None


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Write a file beside `path` and put it in its place when all is written; gzip when the name ends in .gz."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    yield cast(IO[bytes], packed)
            else:
                yield raw
        part.replace(path)
    except OSError as problem:
        raise TraceError(f"cannot write the trace {path}: {problem.strerror}; check the folder and its space") from None
    finally:
        part.unlink(missing_ok=True)
