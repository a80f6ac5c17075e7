"""Thread pools that Ctrl-C ends in order.

`KeyboardInterrupt` can strike the main thread anywhere, also while it holds the lock of a
`concurrent.futures.Future`; the thread that delivers the answer then waits forever, and so does
everything that waits for that thread. Therefore, while a pool works, Ctrl-C only puts a mark in the
queue of answers (`queue.SimpleQueue.put` is reentrant: Python documentation, "queue"), and
`KeyboardInterrupt` is raised where that queue is read.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Empty, Full, Queue, SimpleQueue
from typing import Generic, TypeVar

import msgspec

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Kind = TypeVar("Kind")

_preparing = threading.RLock()
_prepared: set[object] = set()


def prepare_type(kind: type[Kind]) -> type[Kind]:
    """Return a type that threads may decode at the same time.

    msgspec (0.22) learns the fields of a struct when it first decodes one, and other threads see
    that struct before its last field is known: the process ends with a segmentation fault.
    """
    if kind not in _prepared:
        with _preparing:
            msgspec.msgpack.Decoder(kind)
            _prepared.add(kind)
    return kind


def side_by_side(
    work: Callable[[Item], Answer], items: Sequence[Item], jobs: int, name: str
) -> tuple[Answer, ...]:
    """Return `work` of each item, in the order of the items, with `jobs` threads."""
    crew = Crew[tuple[int, Item], Answer](lambda numbered: work(numbered[1]), jobs, name)
    answers = {number: answer for (number, _), answer in crew.answers(list(enumerate(items)))}
    return tuple(answers[number] for number in range(len(items)))


def ended_within(seconds: float, work: Callable[[], Answer], name: str) -> Future[Answer] | None:
    """Run `work` in a thread of its own; return None if it has not ended after `seconds`.

    Nothing waits for that thread then, not even the end of the process: a missing network file
    system blocks every access, and no signal interrupts it. Raises `RuntimeError` if no thread can
    be started.
    """
    future = Future[Answer]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    return future if future.done() else None


class Crew(Generic[Item, Answer]):
    """Up to `jobs` threads, named `name`, that do `work`.

    `stop` makes running work end soon; without it, a cancelled pool waits for it.
    """

    def __init__(
        self,
        work: Callable[[Item], Answer],
        jobs: int,
        name: str,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._work = work
        self._jobs = max(1, jobs)
        self._name = name
        self._stop = stop
        self._futures: dict[Future[Answer], Item] = {}

    def answers(self, items: Sequence[Item]) -> Iterator[tuple[Item, Answer]]:
        """Yield each item with its answer, in order of completion.

        Raises what `work` raises, and `KeyboardInterrupt`; either cancels the rest, as does leaving
        the loop.
        """
        ready: SimpleQueue[Future[Answer] | None] = SimpleQueue()
        pool = ThreadPoolExecutor(self._jobs, thread_name_prefix=self._name)
        try:
            with _interrupts(lambda: ready.put(None)):
                try:
                    for item in items:
                        future = pool.submit(self._work, item)
                        self._futures[future] = item
                        future.add_done_callback(ready.put)
                    for _ in items:
                        first = ready.get()
                        if first is None:
                            raise KeyboardInterrupt
                        if not first.cancelled():
                            yield self._futures.pop(first), first.result()
                except BaseException:
                    self.send_home()
                    raise
            # Read once Ctrl-C leaves no more marks, so that one after the last answer is not lost.
            if not ready.empty():
                raise KeyboardInterrupt
        finally:
            # A second Ctrl-C may end this wait.
            pool.shutdown()

    def send_home(self) -> None:
        """Start nothing more and stop running work; answers that are ready are still yielded."""
        for future in self._futures:
            future.cancel()
        self._stop()


@contextmanager
def _interrupts(mark: Callable[[], None]) -> Iterator[None]:
    """Make Ctrl-C call `mark` instead of raising `KeyboardInterrupt` in this thread."""
    ordinary = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ordinary or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: mark())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


#: Seconds between checks while a thread waits.
_INTERVAL = 0.1


def read_ahead(
    chunks: Iterable[bytes],
    held: int,
    name: str,
    check: Callable[[], None] = lambda: None,
    *,
    is_awaited: bool = True,
) -> Generator[bytes, None, None]:
    """Yield `chunks`, and read up to `held` of them ahead in a thread.

    Raises errors of `chunks`, and of `check`, which is called while waiting. The end of the
    generator waits for the thread if it `is_awaited`; else the caller closes the source, which ends
    the thread.
    """
    queue: Queue[bytes | Exception | None] = Queue(held)
    is_closed = threading.Event()

    def put(item: bytes | Exception | None) -> None:
        while not is_closed.is_set():
            with suppress(Full):
                return queue.put(item, timeout=_INTERVAL)

    def fill() -> None:
        try:
            for chunk in chunks:
                put(chunk)
                if is_closed.is_set():
                    return
            put(None)
        except Exception as error:
            put(error)

    thread = threading.Thread(target=fill, name=name, daemon=True)
    thread.start()
    try:
        while True:
            check()
            try:
                # Ctrl-C does not end a wait without a timeout.
                item = queue.get(timeout=_INTERVAL)
            except Empty:
                continue
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        is_closed.set()
        if is_awaited:
            thread.join()
