"""Small work shares tasks, and each piece is answered for, whatever comes of its batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from buildmatrix.base.errors import ComponentError
from buildmatrix.fleet.model import (
    LateError,
    RegistryWaiting,
    RequeuedError,
    WaitingOptions,
    WorkerAnswer,
    WorkerKilledError,
    WorkError,
)
from buildmatrix.fleet.workers import Batches, WorkAnswer


class Said(WorkerAnswer, frozen=True):
    """An answer about a number."""

    number: int


Work = Callable[[Sequence[int]], Sequence[Said]]


def ask(
    numbers: Sequence[int], work: Work, threads: int = 1, late: int | None = None
) -> tuple[list[Any], list[list[int]]]:
    """What comes of each number, and the batches in which they went out; `late` has no end."""
    sent: list[list[int]] = []

    async def hand_out(arguments: Sequence[int], _: str) -> WorkAnswer[Said]:
        sent.append(list(arguments))
        await asyncio.sleep(0)
        return WorkAnswer(
            tuple(work(arguments)), 0.0, "worker", late="late" if late in arguments else ""
        )

    async def run() -> list[Any]:
        batches = Batches(hand_out, threads)
        asked = (batches.ask(number, str(number)) for number in numbers)
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(run()), sent


def told(answers: Sequence[Any]) -> list[int]:
    return [answer[1].number for answer in answers]


def test_what_is_asked_at_once_is_spread_over_the_workers_in_few_tasks() -> None:
    answers, sent = ask(range(20), lambda some: [Said(number) for number in some], threads=4)
    assert told(answers) == list(range(20))
    assert sent == [list(range(start, start + 5)) for start in (0, 5, 10, 15)]


def test_a_lonely_piece_goes_out_at_once() -> None:
    assert ask([7], lambda some: [Said(number) for number in some])[1] == [[7]]


def test_what_a_worker_has_not_come_to_is_asked_again() -> None:
    answers, sent = ask(range(5), lambda some: [Said(number) for number in some[:2]])
    assert told(answers) == list(range(5))
    assert sent == [[0, 1, 2, 3, 4], [2, 3, 4], [4]]


def test_what_raises_is_about_the_first_and_the_others_are_asked_again() -> None:
    def work(some: Sequence[int]) -> list[Said]:
        if some[0] == 1:
            raise WorkError("one is broken")
        # As `perform` does it: what raises later is left.
        return [Said(number) for number in some[: some.index(1) if 1 in some else None]]

    answers, sent = ask(range(4), work)
    assert str(answers.pop(1)) == "one is broken"
    assert told(answers) == [0, 2, 3]
    assert sent == [[0, 1, 2, 3], [1, 2, 3], [2, 3]]


def test_what_is_late_is_given_up_and_the_others_are_asked_again() -> None:
    answers, sent = ask(
        range(4), lambda some: [Said(some[0])] if 1 in some else map_all(some), 1, 1
    )
    assert isinstance(answers.pop(1), LateError)
    assert told(answers) == [0, 2, 3]
    assert sent == [[0, 1, 2, 3], [2, 3]]


@pytest.mark.parametrize("error", [WorkerKilledError, ComponentError])
def test_a_batch_that_ends_its_workers_or_the_run_does_so_for_all_of_it(
    error: type[Exception],
) -> None:
    def work(_: Sequence[int]) -> list[Said]:
        raise error("gone")

    assert [type(answer) for answer in ask(range(3), work)[0]] == [error] * 3


def test_after_an_answer_that_may_pass_nothing_else_is_tried_unasked() -> None:
    answers, sent = ask(
        range(40), lambda some: [Said(some[0], again=True)] if some[0] == 0 else map_all(some)
    )
    assert answers[0][1] == Said(0, again=True)
    assert {type(answer) for answer in answers[1:16]} == {RequeuedError}
    assert sent[0] == list(range(16))


def map_all(some: Sequence[int]) -> list[Said]:
    return [Said(number) for number in some]


def test_what_was_put_back_waits_for_its_registry_and_is_asked_again() -> None:
    async def run() -> Said:
        waiting = RegistryWaiting(WaitingOptions(first_pause=0.0), lambda _: None)
        outcomes: list[Said | Exception] = [RequeuedError(), RequeuedError(), Said(3)]

        async def once() -> Said:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        said = await waiting.ask("registry.test", once)
        assert waiting.repeated == 0
        return said

    assert asyncio.run(run()) == Said(3)


def test_who_has_gone_holds_nobody_up() -> None:
    sent: list[list[int]] = []

    async def hand_out(arguments: Sequence[int], _: str) -> WorkAnswer[Said]:
        sent.append(list(arguments))
        return WorkAnswer(tuple(map(Said, arguments)), 0.0, "worker")

    async def run() -> None:
        batches = Batches(hand_out, 1)
        first, second = (asyncio.create_task(batches.ask(number, str(number))) for number in (1, 2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second)[1] == Said(2)

    asyncio.run(run())
    assert sent == [[2]]
