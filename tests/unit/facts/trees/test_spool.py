"""What several threads put into one unnamed file comes back to each of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from buildmatrix.facts.trees.archive import Slice, Spool


def test_what_another_thread_keeps_meanwhile_lies_elsewhere() -> None:
    """Two targets of one build once read layers at the same time, and one got the other's bytes."""
    spool = Spool()
    kept: dict[str, Slice] = {}

    def other() -> None:
        kept["other"] = spool.store(iter((b"o" * 3000,)))

    thread = threading.Thread(target=other)

    def chunks() -> Iterator[bytes]:
        yield b"a" * 1000
        thread.start()
        # It waits for its turn; where it does not, its bytes are in the way of what follows.
        thread.join(0.2)
        yield b"b" * 1000

    kept["own"] = spool.store(chunks())
    thread.join()
    assert kept["own"].read(0, 5000) == b"a" * 1000 + b"b" * 1000
    assert kept["other"].read(0, 5000) == b"o" * 3000
    spool.close()
