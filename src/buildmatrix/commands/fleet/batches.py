"""Batches of small pieces of work that arrive while workers are busy.

A task costs Dask about as much processor time on both ends as resolving a tag, so a task per piece
would double the cost of a fleet of small images. A batch is no larger than the share of the waiting
pieces per worker thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from buildmatrix.commands.fleet.failing import LateError, WorkerKilledError, WorkError
from buildmatrix.commands.fleet.performing import WorkAnswer
from buildmatrix.commands.fleet.waiting import RequeuedError, is_temporary

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

#: Pieces of one batch. At 16, the cost of a task is small compared to its work.
_MOST = 16
#: Batches per worker thread: the current one, and the next. The number of workers may grow.
_FOR_EACH_THREAD = 2
_FEWEST = 8


@dataclass(frozen=True, slots=True)
class _Piece(Generic[Argument, Answer]):
    argument: Argument
    key: str
    #: The address of a worker, and its answer.
    answer: asyncio.Future[tuple[str, Answer]]


class Batches(Generic[Argument, Answer]):
    """Pieces of one kind of work for `threads` of workers. For one event loop.

    `hand_out` submits these arguments to a worker, in order, under a name; see `perform`.
    """

    def __init__(
        self,
        hand_out: Callable[[Sequence[Argument], str], Awaitable[WorkAnswer[Answer]]],
        threads: int,
    ) -> None:
        self._hand_out = hand_out
        self._threads = threads
        self._free = max(_FEWEST, _FOR_EACH_THREAD * threads)
        self._waiting: deque[_Piece[Argument, Answer]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, argument: Argument, key: str) -> tuple[str, Answer]:
        """Return the address of a worker, and its answer.

        Raises the exceptions of `hand_out`: `WorkerKilledError` also if another piece of the batch
        killed the workers, and `RequeuedError` if it was not tried, since an earlier piece got a
        temporary failure.
        """
        loop = asyncio.get_running_loop()
        piece: _Piece[Argument, Answer] = _Piece(argument, key, loop.create_future())
        self._waiting.append(piece)
        # Includes others that ask at the same time.
        loop.call_soon(self._submit_batches)
        return await piece.answer

    def cancel(self) -> None:
        """Cancel all running batches."""
        for task in self._tasks:
            task.cancel()

    def _submit_batches(self) -> None:
        # The same for each worker.
        number = min(_MOST, -(-len(self._waiting) // self._threads))
        while self._waiting and self._free:
            batch = [self._waiting.popleft() for _ in range(min(number, len(self._waiting)))]
            # The requester may be gone.
            if batch := [piece for piece in batch if not piece.answer.done()]:
                self._free -= 1
                task = asyncio.create_task(self._run_batch(batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run_batch(self, batch: Sequence[_Piece[Argument, Answer]]) -> None:
        others = len(batch) - 1
        name = f"{batch[0].key} and {others} more" if others else batch[0].key
        done = 1
        try:
            answered = await self._hand_out([piece.argument for piece in batch], name)
        except WorkerKilledError:
            done = len(batch)
            for piece in batch:
                _fail_piece(piece, WorkerKilledError())
        except WorkError as error:
            _fail_piece(batch[0], error)
        except BaseException as error:
            done = len(batch)
            for piece in batch:
                _fail_piece(piece, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            done = len(answered.answers)
            for piece, answer in zip(batch, answered.answers, strict=False):
                if not piece.answer.done():
                    piece.answer.set_result((answered.worker, answer))
            if answered.late:
                _fail_piece(batch[done], LateError(answered.late))
                done += 1
            elif is_temporary(answered.answers[-1]):
                # Waiting requesters must learn of it before more is asked.
                for piece in (*batch[done:], *self._waiting):
                    _fail_piece(piece, RequeuedError())
                self._waiting.clear()
                done = len(batch)
        finally:
            self._waiting.extendleft(reversed(batch[done:]))
            self._free += 1
            self._submit_batches()


def _fail_piece(piece: _Piece[Argument, Answer], error: BaseException) -> None:
    if piece.answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        piece.answer.cancel()
    else:
        piece.answer.set_exception(error)
