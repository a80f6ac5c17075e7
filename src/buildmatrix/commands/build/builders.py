"""Schedule of several builders, each with as many slots as it builds targets at a time.

A slot that is free takes, of all targets that wait, the one that its builder's cache is warmest
for: one that shares a lock or a base with what this builder has built, and no other has.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from buildmatrix.commands.build.work import BuildWork


@dataclass(slots=True)
class Slot:
    """A place on a builder, and the target that holds it until it is done."""

    builder: str | None
    work: BuildWork


class Builders:
    """The slots of all builders, and the targets that wait for one; threads share it."""

    def __init__(
        self, names: Sequence[str | None], jobs: int, waiting: Sequence[BuildWork]
    ) -> None:
        """`jobs` targets at a time on each of the builders `names`."""
        self._changed = threading.Condition()
        self._free = dict.fromkeys(names, jobs)
        self._waiting = list(waiting)
        #: What lies in the cache of each, as far as the journal and this run say.
        self._warm = {
            name: {part for work in waiting if work.home == name for part in _parts(work)}
            for name in names
        }
        #: How many targets wait to be taken to another builder.
        self._moving = 0
        self._stopped = False

    @contextmanager
    def slot(self) -> Iterator[Slot | None]:
        """A slot with the target for it, as soon as one is free; None once the run stops."""
        with self._changed:
            # Those first that lost their builder: who waits for the run hears of it then.
            self._changed.wait_for(
                lambda: self._stopped or (any(self._free.values()) and not self._moving)
            )
            slot = None if self._stopped or not self._waiting else self._taken()
        try:
            yield slot
        finally:
            if slot is not None:
                self._give_back(slot.builder)

    def move(self, slot: Slot) -> bool:
        """Take a target from its builder, which died, to another one; False where there is none.

        A builder that died gets no more targets, unless it is the last. Blocks until a slot is
        free. A run that stops moves nothing.
        """
        with self._changed:
            others = [name for name in self._free if name != slot.builder]
            if not others:
                return False
            self._free.pop(slot.builder, None)
            # Builders may die while this waits, and the last one stays.
            self._moving += 1
            self._changed.wait_for(lambda: self._stopped or any(self._free.values()))
            self._moving -= 1
            self._changed.notify_all()
            if self._stopped:
                return False
            slot.builder = max(self._free, key=lambda name: self._free[name])
            self._hold(slot)
            return True

    def stop(self) -> None:
        """Hand out nothing more, and wake everyone who waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _taken(self) -> Slot:
        first = self._waiting[0]
        if len(self._free) == 1 or first.record is not None:
            # There is no choice, or nothing to be built.
            builder = max(self._free, key=lambda name: self._free[name])
            return self._hold(Slot(builder, self._waiting.pop(0)))
        slots = [
            Slot(builder, work)
            for builder, free in self._free.items()
            if free
            for work in self._waiting
        ]
        # The first of the best: the matrix has neighbors that share most.
        best = max(slots, key=lambda slot: (self._warmth(slot), self._free[slot.builder]))
        # By identity: works are compared field by field.
        self._waiting = [work for work in self._waiting if work is not best.work]
        return self._hold(best)

    def _warmth(self, slot: Slot) -> int:
        """Return how much more of the target this builder has cached than any other."""
        parts = _parts(slot.work)
        shared = {name: len(parts & warm) for name, warm in self._warm.items()}
        own = shared.pop(slot.builder)
        return own - max((shared[name] for name in shared if name in self._free), default=0)

    def _hold(self, slot: Slot) -> Slot:
        self._free[slot.builder] -= 1
        if slot.work.record is None:
            self._warm[slot.builder] |= _parts(slot.work)
        return slot

    def _give_back(self, builder: str | None) -> None:
        with self._changed:
            if builder in self._free:
                self._free[builder] += 1
            self._changed.notify_all()


def _parts(work: BuildWork) -> frozenset[str]:
    """Return the parts of a target that a builder may cache: itself, its wheels, its bases."""
    target, lock = work.target, work.lock
    wheels = target.lock if lock is None else lock.digest
    return frozenset((target.id, wheels, target.base.build, target.base.final))
