"""Registries that are away or busy for a while: everything that needs one waits together.

A worker has asked a few times when it says that something may work later. If the same were then
asked for each of 10,000 images, a registry that has too much to do would get 10,000 times more, and
all images would fail within the minute that it is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


class MayPass(Protocol):
    """An answer that says whether asking again may give a better one."""

    @property
    def again(self) -> bool:
        """Whether it may."""
        ...


Answer = TypeVar("Answer", bound=MayPass)
#: Questions without an answer, after which people want to know why nothing happens.
_NOTED = 2


class AwayError(Exception):
    """A registry was waited for long enough; its text is the sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingOptions:
    """How long registries are waited for; all times in seconds."""

    #: Without any answer of use.
    longest: float = 180.0
    #: Between two questions: doubles from the first to the last.
    first_pause: float = 1.0
    last_pause: float = 15.0
    #: Questions about what fails while the registry answers others.
    tries: int = 3


@dataclass(slots=True)
class _Host:
    #: Since when it gives no answer of use; None where it does.
    away_since: float | None = None
    #: When it may be asked again, and how often that was without an answer since it is away.
    next: float = 0.0
    failed: int = 0
    #: Answers of use so far.
    answers: int = 0
    #: Who may ask it while it is away: one at a time, and in turn.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Waiting:
    """What is known of the registries of a run. Belongs to one event loop."""

    def __init__(self, options: WaitingOptions, note: Callable[[str], None]) -> None:
        self._options = options
        self._note = note
        self._hosts: dict[str, _Host] = {}
        #: Questions that were asked again.
        self.repeated = 0

    async def answer(self, name: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """What `ask` gives about the registry `name`; asked again, within bounds, if it may pass.

        Where it does not pass, that is the last answer. Raises `AwayError` where the registry was
        away for so long that it is not even asked.
        """
        host = self._hosts.setdefault(name, _Host())
        #: Answers to others, when this failed last; times that it failed although there were some.
        answers, strikes = host.answers, 0
        while True:
            if host.away_since is None:
                answer = await ask()
            else:
                answer = await self._in_turn(host, name, ask)
            if not answer.again:
                host.answers += 1
                host.away_since = None
                return answer
            strikes += host.answers > answers
            answers = host.answers
            if host.away_since is None:
                # Others may have been asked for at the same time: that is no second failure.
                host.away_since, host.failed = self._now(), 0
                host.next = self._now() + self._options.first_pause
            if strikes >= self._options.tries or self._was_awaited(host):
                return answer
            self.repeated += 1

    async def _in_turn(
        self, host: _Host, name: str, ask: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """The answer of a registry that is away: asked once in a while, by one at a time."""
        async with host.turn:
            if host.away_since is not None:
                if self._was_awaited(host) and self._now() < host.next:
                    raise AwayError(
                        f"{name} was away or busy for {self._options.longest:.0f} s and was not "
                        "asked for this; run it again later"
                    )
                await asyncio.sleep(host.next - self._now())
                answer = await ask()
                if answer.again:
                    host.failed += 1
                    if host.failed == _NOTED:
                        self._note(f"{name} is away or busy: waiting for it")
                    pause = self._options.first_pause * 2**host.failed
                    host.next = self._now() + min(pause, self._options.last_pause)
                return answer
        # It answered somebody else meanwhile.
        return await ask()

    def _was_awaited(self, host: _Host) -> bool:
        since = host.away_since
        return since is not None and self._now() - since > self._options.longest

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
