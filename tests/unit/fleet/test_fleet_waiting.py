"""Registries that are away, on a clock of the test's own."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from buildmatrix.fleet.model import RegistryUnavailableError, RegistryWaiting, WaitingOptions
from buildmatrix.fleet.model import WorkerAnswer as Said


class Clock(asyncio.SelectorEventLoop):
    """Sleeps take no time: what is due next is due now."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


class Registry:
    """Answers from `back` on, never about what is `bad`; until then it asks for a pause."""

    def __init__(self, back: float, bad: str = "", wait: float = 0.0) -> None:
        self.back, self.bad, self.wait = back, bad, wait
        self.asked: list[tuple[float, str]] = []

    async def ask(self, name: str) -> Said:
        now = asyncio.get_running_loop().time()
        self.asked.append((now, name))
        await asyncio.sleep(0.01)
        again = now < self.back or name == self.bad
        return Said(again=again, wait=self.wait if again else 0.0)


def on_clock(work: Coroutine[Any, Any, Any]) -> Any:
    loop = Clock()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def answers(
    registry: Registry, names: list[str], notes: list[str], at_once: int = 4
) -> tuple[dict[str, object], int]:
    waiting = RegistryWaiting(WaitingOptions(), notes.append)
    said: dict[str, object] = {}
    queue = iter(names)

    async def take() -> None:
        for name in queue:
            try:
                said[name] = await waiting.ask("host", lambda name=name: registry.ask(name))
            except RegistryUnavailableError as error:
                said[name] = str(error)

    await asyncio.gather(*(take() for _ in range(at_once)))
    return said, waiting.repeated


NAMES = [f"image{number}" for number in range(100)]


def test_a_registry_that_is_away_for_a_minute_costs_nothing_but_the_minute() -> None:
    registry, notes = Registry(back=60.0), list[str]()
    said, repeated = on_clock(answers(registry, NAMES, notes))
    assert set(said.values()) == {Said(again=False)}
    while_away = [when for when, _ in registry.asked if when < 60.0]
    # Those that were under way, and then one at a time, less and less often.
    assert len(while_away) <= 4 + 6
    assert repeated == len(registry.asked) - len(NAMES)
    assert notes == ["host is away or busy: waiting for it"]
    assert max(when for when, _ in registry.asked) < 80.0


def test_one_image_is_waited_for_as_long_as_many() -> None:
    said, _ = on_clock(answers(Registry(back=60.0), ["image"], []))
    assert said == {"image": Said(again=False)}


def test_a_registry_that_stays_away_is_not_asked_for_every_image() -> None:
    registry = Registry(back=1e9)
    said, _ = on_clock(answers(registry, NAMES, []))
    assert len(said) == 100
    assert Said(again=False) not in said.values()
    sentence = "host was away or busy for 180 s and was not asked for this; run it again later"
    assert list(said.values()).count(sentence) >= 90
    assert len(registry.asked) < 30
    assert max(when for when, _ in registry.asked) < 240.0


def test_what_fails_while_others_are_answered_holds_up_nobody() -> None:
    registry = Registry(back=0.0, bad="image7")
    said, repeated = on_clock(answers(registry, NAMES, []))
    assert said.pop("image7") == Said(again=True)
    assert set(said.values()) == {Said(again=False)}
    assert repeated == len(registry.asked) - len(NAMES)
    assert max(when for when, name in registry.asked if name != "image7") < 1.0
    assert 60.0 < max(when for when, _ in registry.asked) < 80.0


@pytest.mark.parametrize("name", ["one", "other"])
def test_registries_are_waited_for_apart(name: str) -> None:
    async def both() -> float:
        waiting = RegistryWaiting(WaitingOptions(), lambda _: None)
        away, here = Registry(back=60.0), Registry(back=0.0)
        task = asyncio.ensure_future(waiting.ask("away", lambda: away.ask("image")))
        await asyncio.sleep(1.0)
        await waiting.ask("here", lambda: here.ask(name))
        passed = asyncio.get_running_loop().time()
        await task
        return passed

    assert on_clock(both()) < 2.0


def test_credentials_that_never_were_good_are_not_waited_for_and_others_are() -> None:
    async def say(denied: bool) -> Said:
        return Said(again=denied, denied=denied)

    async def run() -> tuple[list[float], list[str]]:
        loop, times = asyncio.get_running_loop(), list[float]()
        waiting = RegistryWaiting(WaitingOptions(), lambda _: None)
        for denied in (True, False):
            await waiting.ask("registry.test", partial(say, denied))
            times.append(loop.time())
        # It gave something once: they may have run out, and be renewed.
        several = (waiting.ask("registry.test", partial(say, True)) for _ in range(9))
        answers = await asyncio.gather(*several, return_exceptions=True)
        times.append(loop.time())
        return times, [
            str(answer) for answer in answers if isinstance(answer, RegistryUnavailableError)
        ]

    times, said = on_clock(run())
    assert times[:2] == [0.0, 0.0] and times[2] >= 180.0
    assert said and all("refusing the credentials of workers for 180 s" in text for text in said)


def test_a_registry_is_left_alone_for_as_long_as_it_asks() -> None:
    registry, notes = Registry(back=100.0, wait=60.0), list[str]()
    said, _ = on_clock(answers(registry, NAMES, notes))
    assert all(item == Said(again=False) for item in said.values())
    times = sorted({round(time) for time, _ in registry.asked})
    assert times[:3] == [0, 60, 120], "those that were on their way, and then one at a time"
    assert len([time for time, _ in registry.asked if 1 < time < 119]) == 1


def test_nobody_waits_for_a_registry_that_asks_for_more_than_a_run_has() -> None:
    registry, notes = Registry(back=float("inf"), wait=3600.0), list[str]()
    said, _ = on_clock(answers(registry, NAMES, notes))
    # Those that were on their way, and one until a second has failed.
    assert len(registry.asked) == 5
    assert [item for item in said.values() if item == Said(again=True, wait=3600.0)]
    told = [item for item in said.values() if isinstance(item, str)]
    assert len(told) == 95
    assert set(told) == {
        "host is rate-limited for 3600 s and was not asked for this; run it again later"
    }


def test_what_fails_alone_is_left_alone_for_as_long_as_it_asks() -> None:
    registry = Registry(back=0.0, bad="image7", wait=25.0)
    said, _ = on_clock(answers(registry, NAMES, []))
    assert said["image7"] == Said(again=True, wait=25.0)
    times = [round(time) for time, name in registry.asked if name == "image7"]
    assert len(times) == 3 and {after - before for before, after in pairwise(times)} == {25}
