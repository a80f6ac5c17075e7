"""Bytes that arrive in order: the end of a file of a server is not known before its beginning."""

from __future__ import annotations

from collections.abc import Iterator


class Forward:
    """Reads from `chunks`, forward only."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""
        #: How much of `_held` was handed out.
        self._used = 0
        #: Bytes that were handed out.
        self.at = 0

    def read(self, length: int) -> bytes:
        """The next bytes, at least one and at most `length`; none at the end."""
        if length <= 0:
            return b""
        while self._used == len(self._held):
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._held, self._used = chunk, 0
        data = self._held[self._used : self._used + length]
        self._used += len(data)
        self.at += len(data)
        return data

    def exactly(self, length: int) -> bytes:
        """The next `length` bytes; fewer only at the end."""
        pieces = []
        while length > 0 and (piece := self.read(length)):
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

    def peek(self, length: int) -> bytes:
        """The next `length` bytes, which are read again; fewer only at the end."""
        data = self.exactly(length)
        self.back(data)
        return data

    def back(self, data: bytes) -> None:
        """Takes back what was read last."""
        if self._used >= len(data):
            self._used -= len(data)
        else:
            self._held, self._used = data + self._held[self._used :], 0
        self.at -= len(data)

    def close(self) -> None:
        """No more is wanted."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
