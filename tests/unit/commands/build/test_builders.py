"""Slots of several builders: spread, affinity, builders that die, and a run that stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.base.threads import Crew
from buildmatrix.commands.build_work import Builders, BuildWork, Slot
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Base
from buildmatrix.sources.state_folder import BuildRecord, State

#: Seconds after which a test hangs.
PATIENCE = 300.0


def work(id: str, *, base: str = "debian", lock: str = "", home: str | None = None) -> BuildWork:
    held = BuildWork(
        replace(target("cpu"), id=id, base=Base(base, base)),
        State(Path("nowhere")).target_files(id),
    )
    held.lock = Lock(Path("lock"), (), "sha256:inputs", f"sha256:{lock or id}")
    held.home = home
    return held


class Run:
    """What a run does with its builders, with a function in place of an engine.

    `build` says whether the builder lived.
    """

    def __init__(
        self, works: list[BuildWork], build: Callable[[Slot], bool], *names: str, jobs: int = 2
    ) -> None:
        self.builders = Builders(names, jobs, works)
        self.works = works
        self.build = build
        self.lock = threading.Lock()
        self.built: dict[str, str | None] = {}
        self.failed: list[str] = []
        self.tries: list[tuple[str, str | None]] = []
        #: Whether a target was seen that waits for another builder.
        self.moved = False
        self.crew = Crew(self.turn, jobs * len(names), "target", stop=self.builders.stop)

    def turn(self, _: BuildWork) -> None:
        with self.builders.slot() as slot:
            if slot is None:
                return
            built = self.attempt(slot) or (self.builders.move(slot) and self.attempt(slot))
            with self.lock:
                if built:
                    self.built[slot.work.target.id] = slot.builder
                else:
                    self.failed.append(slot.work.target.id)

    def attempt(self, slot: Slot) -> bool:
        with self.lock:
            self.tries.append((slot.work.target.id, slot.builder))
        return self.build(slot)

    def all(self) -> Run:
        for _ in self.crew.answers(self.works):
            pass
        return self


def test_every_target_is_built_once_and_no_builder_has_more_than_its_slots() -> None:
    running = dict.fromkeys("abc", 0)
    most = dict.fromkeys("abc", 0)
    lock = threading.Lock()
    # As many as there are slots: all of them are taken at the same time.
    together = threading.Barrier(6)

    def build(slot: Slot) -> bool:
        assert slot.builder is not None
        with lock:
            running[slot.builder] += 1
            most[slot.builder] = max(most[slot.builder], running[slot.builder])
        together.wait(PATIENCE)
        with lock:
            running[slot.builder] -= 1
        return True

    run = Run([work(f"t{n}", base=f"b{n}") for n in range(24)], build, *"abc").all()
    assert sorted(run.built) == sorted(f"t{n}" for n in range(24))
    assert len(run.tries) == 24
    assert most == {"a": 2, "b": 2, "c": 2}


def test_targets_of_one_base_or_lock_stay_on_one_builder() -> None:
    works = [work(f"{base}-{n}", base=base) for n in range(3) for base in ("cuda", "rocm")]
    both = threading.Barrier(2)

    def build(slot: Slot) -> bool:
        # Side by side, so that neither builder runs out of its own before the other.
        both.wait(PATIENCE)
        return True

    built = Run(works, build, "a", "b", jobs=1).all().built
    cuda = {built[id] for id in built if id.startswith("cuda")}
    rocm = {built[id] for id in built if id.startswith("rocm")}
    assert (cuda, rocm) in [({"a"}, {"b"}), ({"b"}, {"a"})]


def test_a_target_goes_where_the_wheels_of_its_lock_are() -> None:
    works = [work("one", lock="torch"), work("two", lock="torch"), work("three", lock="jax")]
    builders = Builders(("a", "b"), 1, works)
    with builders.slot() as one, builders.slot() as other:
        assert one is not None and other is not None
        assert [slot.work.target.id for slot in (one, other)] == ["one", "three"]


def test_a_target_goes_where_its_last_image_was_built() -> None:
    works = [work("first", home="b"), work("second", home="a")]
    builders = Builders(("a", "b"), 1, works)
    with builders.slot() as one, builders.slot() as other:
        assert one is not None and other is not None
        assert {one.work.target.id: one.builder, other.work.target.id: other.builder} == {
            "first": "b",
            "second": "a",
        }


def test_a_slow_builder_gets_fewer_targets() -> None:
    others_are_done = threading.Event()
    done: list[str] = []

    def build(slot: Slot) -> bool:
        if slot.builder == "slow":
            return others_are_done.wait(PATIENCE)
        done.append(slot.work.target.id)
        if len(done) == 9:
            others_are_done.set()
        return True

    built = Run([work(f"t{n}") for n in range(10)], build, "slow", "fast", jobs=1).all().built
    assert sorted(built.values(), key=str) == ["fast"] * 9 + ["slow"]


def test_a_builder_that_dies_costs_its_targets_one_retry_and_gets_no_more() -> None:
    both = threading.Barrier(4)
    begun = threading.Semaphore(4)

    def build(slot: Slot) -> bool:
        if begun.acquire(blocking=False):
            both.wait(PATIENCE)
        return slot.builder != "dead"

    run = Run([work(f"t{n}", base=f"b{n}") for n in range(12)], build, "dead", "alive").all()
    assert run.built == {f"t{n}": "alive" for n in range(12)}
    assert sum(builder == "dead" for _, builder in run.tries) == 2
    assert len(run.tries) == 14


def test_a_target_whose_builder_died_comes_before_those_that_wait() -> None:
    begun = threading.Semaphore(2)
    both = threading.Barrier(2)

    def build(slot: Slot) -> bool:
        if begun.acquire(blocking=False):
            both.wait(PATIENCE)
        # The builder that lives has its first target until the other's waits for it.
        end = time.monotonic() + PATIENCE
        while slot.builder == "alive" and not run.moved and time.monotonic() < end:
            run.moved = run.builders._moving == 1
            time.sleep(0.001)
        return slot.builder != "dead"

    run = Run([work(f"t{n}", base=f"b{n}") for n in range(6)], build, "dead", "alive", jobs=1)
    run.all()
    (lost,) = [id for id, builder in run.tries if builder == "dead"]
    assert [id for id, builder in run.tries if builder == "alive"][1] == lost


def test_when_all_die_every_target_is_tried_and_fails_once() -> None:
    run = Run([work(f"t{n}") for n in range(12)], lambda _: False, *"abc").all()
    assert run.built == {}
    assert sorted(run.failed) == sorted(f"t{n}" for n in range(12))
    assert all(sum(id == tried for tried, _ in run.tries) <= 2 for id in run.failed)


def test_the_only_builder_stays_although_it_failed() -> None:
    run = Run([work(f"t{n}") for n in range(5)], lambda slot: slot.work.target.id == "t4", "a")
    assert run.all().built == {"t4": "a"}
    assert len(run.tries) == 5


def test_a_run_that_stops_lets_nobody_wait() -> None:
    reached = threading.Barrier(3)
    stopped = threading.Event()

    def build(slot: Slot) -> bool:
        reached.wait(PATIENCE)
        if slot.builder == "dead":
            return False
        return stopped.wait(PATIENCE)

    run = Run([work(f"t{n}", base=f"b{n}") for n in range(6)], build, "dead", "alive", jobs=1)

    def interrupt() -> None:
        # Both slots are held: the target of the dead builder waits for the other's.
        reached.wait(PATIENCE)
        run.crew.send_home()
        stopped.set()

    aside = threading.Thread(target=interrupt)
    aside.start()
    run.all()
    aside.join(PATIENCE)
    assert len(run.tries) == 2
    assert run.failed == [id for id, builder in run.tries if builder == "dead"]


def test_ctrl_c_ends_a_run_with_targets_that_wait_for_a_builder() -> None:
    def build(slot: Slot) -> bool:
        if slot.builder == "dead":
            return False
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run([work(f"t{n}") for n in range(6)], build, "dead", "alive", jobs=1).all()


def test_what_is_built_already_takes_any_slot_and_warms_nothing() -> None:
    works = [work(f"t{n}", base="cuda") for n in range(3)]
    for held in works[:2]:
        held.record = BuildRecord(
            key="k", digest="d", config=None, loaded=True, tags=(), inventory="", seconds=1
        )
    builders = Builders(("a", "b"), 1, works)
    with builders.slot() as first, builders.slot() as second:
        assert first is not None and second is not None
        assert {first.builder, second.builder} == {"a", "b"}
