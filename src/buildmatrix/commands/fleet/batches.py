"""Small pieces of work share tasks: what is asked while workers are busy goes out in batches.

Handing out a task costs Dask about as much processor time as finding out which image a tag means,
on both ends together, so a task for each piece would double what a fleet of small images costs. A
batch is no larger than what waits for each thread of a worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from buildmatrix.commands.fleet.failing import LateError, WorkerKilledError, WorkError
from buildmatrix.commands.fleet.performing import Answered
from buildmatrix.commands.fleet.waiting import PutBackError, may_pass

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

#: Pieces of one batch. At 16, what a task costs is small beside what it does.
_MOST = 16
#: Batches that are handed out for each thread of a worker: one that it does, and the next. There
#: may be more workers later than there were at the start.
_FOR_EACH_THREAD = 2
_FEWEST = 8


@dataclass(frozen=True, slots=True)
class _Piece(Generic[Argument, Answer]):
    argument: Argument
    key: str
    #: The address of a worker, and what it said.
    answer: asyncio.Future[tuple[str, Answer]]


class Batches(Generic[Argument, Answer]):
    """Pieces of one kind of work, which wait for `threads` of workers. For one event loop.

    `hand_out` gives these arguments to a worker, in this order, under a name, see `perform`.
    """

    def __init__(
        self,
        hand_out: Callable[[Sequence[Argument], str], Awaitable[Answered[Answer]]],
        threads: int,
    ) -> None:
        self._hand_out = hand_out
        self._threads = threads
        self._free = max(_FEWEST, _FOR_EACH_THREAD * threads)
        self._waiting: deque[_Piece[Argument, Answer]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, argument: Argument, key: str) -> tuple[str, Answer]:
        """The address of a worker, and what it said.

        Raises what handing it out raises, `WorkerKilledError` also where another piece of the same
        batch killed the workers, and `PutBackError` where it was not tried, since what came before
        it got an answer that may pass.
        """
        loop = asyncio.get_running_loop()
        piece: _Piece[Argument, Answer] = _Piece(argument, key, loop.create_future())
        self._waiting.append(piece)
        # Others that ask at the same time come along.
        loop.call_soon(self._go_on)
        return await piece.answer

    def cancel(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()

    def _go_on(self) -> None:
        # The same for each worker.
        number = min(_MOST, -(-len(self._waiting) // self._threads))
        while self._waiting and self._free:
            batch = [self._waiting.popleft() for _ in range(min(number, len(self._waiting)))]
            # Whoever asked may have gone.
            if batch := [piece for piece in batch if not piece.answer.done()]:
                self._free -= 1
                task = asyncio.create_task(self._through(batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _through(self, batch: Sequence[_Piece[Argument, Answer]]) -> None:
        others = len(batch) - 1
        name = f"{batch[0].key} and {others} more" if others else batch[0].key
        done = 1
        try:
            answered = await self._hand_out([piece.argument for piece in batch], name)
        except WorkerKilledError:
            done = len(batch)
            for piece in batch:
                _fail(piece, WorkerKilledError())
        except WorkError as error:
            _fail(batch[0], error)
        except BaseException as error:
            done = len(batch)
            for piece in batch:
                _fail(piece, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            done = len(answered.answers)
            for piece, answer in zip(batch, answered.answers, strict=False):
                if not piece.answer.done():
                    piece.answer.set_result((answered.worker, answer))
            if answered.late:
                _fail(batch[done], LateError(answered.late))
                done += 1
            elif may_pass(answered.answers[-1]):
                # Whoever waits is to know of it before it is asked again.
                for piece in (*batch[done:], *self._waiting):
                    _fail(piece, PutBackError())
                self._waiting.clear()
                done = len(batch)
        finally:
            self._waiting.extendleft(reversed(batch[done:]))
            self._free += 1
            self._go_on()


def _fail(piece: _Piece[Argument, Answer], error: BaseException) -> None:
    if piece.answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        piece.answer.cancel()
    else:
        piece.answer.set_exception(error)
