from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from buildmatrix.facts.inventory import workers
from buildmatrix.facts.inventory.workers import spread

BIG = [workers.WORTH_IT] * 7


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    # A process with threads is not forked; no file of tests leaves one, see conftest.py.
    monkeypatch.setattr(workers, "count_processors", lambda: 2)


def no_children_are_left() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def test_results_come_in_the_order_of_the_items_and_from_two_processes(tmp_path: Path) -> None:
    def work(index: int) -> tuple[int, int]:
        # Neither process empties the queue before the other one has begun.
        (tmp_path / str(os.getpid())).touch()
        until = time.monotonic() + 300
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        return index, os.getpid()

    results = spread(work, BIG)
    assert [index for index, _ in results] == list(range(7))
    assert len({process for _, process in results}) == 2
    assert no_children_are_left()


def test_every_item_is_in_one_share_and_large_ones_come_first() -> None:
    sizes = [5, 3 << 20, *[200] * 5000, 900 << 20, 0, 40 << 20]
    shares = workers._divide(sizes, 64)
    assert sorted(index for share in shares for index in share) == list(range(len(sizes)))
    assert shares[:2] == [[5002], [5004]]
    assert len(shares) < 3 * 64
    assert all(share == sorted(share) for share in shares)


def test_the_queue_of_the_most_shares_fits_into_the_smallest_pipe() -> None:
    most = workers.MOST_WORKERS * workers._SHARES
    # As many large items as there can be, and as many runs of small ones.
    sizes = [1 << 30, *[0] * 100_000] * 3
    assert len(workers._divide(sizes, most)) * workers._TICKET.size <= 4096


@pytest.mark.parametrize("sizes", [BIG, [1, 2, 3]])
def test_whoever_watches_hears_of_all_items_in_this_process(sizes: list[int]) -> None:
    told: list[tuple[int, int]] = []
    assert spread(lambda index: index, sizes, lambda *numbers: told.append(numbers))
    assert told == sorted(told)
    assert {total for _, total in told} == {len(sizes)}
    assert told[-1] == (len(sizes), len(sizes))


def test_whoever_watches_hears_of_the_end_where_another_process_did_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = os.getpid()
    shares = workers._next_shares
    monkeypatch.setattr(
        workers, "_next_shares", lambda queue: [] if os.getpid() == parent else shares(queue)
    )
    told: list[tuple[int, int]] = []
    assert spread(lambda index: index, BIG, lambda *numbers: told.append(numbers)) == [*range(7)]
    assert told == [(7, 7)]


def test_little_work_stays_in_this_process() -> None:
    assert set(spread(lambda index: os.getpid(), [1, 2, 3])) == {os.getpid()}


def test_a_worker_that_dies_costs_a_second_attempt_and_no_result() -> None:
    parent = os.getpid()

    def work(index: int) -> int:
        if os.getpid() != parent:
            os._exit(9)  # as the kernel does to one that takes too much memory
        return index

    assert spread(work, BIG) == list(range(7))
    assert no_children_are_left()


def test_without_room_for_a_process_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    assert spread(lambda index: index, BIG) == list(range(7))


def test_an_error_of_the_work_reaches_the_caller_and_leaves_no_process() -> None:
    def work(index: int) -> int:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        spread(work, BIG)
    assert no_children_are_left()


class Display:
    """A thread that only shows something, as a command's progress does."""

    def __init__(self) -> None:
        self.resume()

    def pause(self) -> None:
        self.ending.set()
        self.thread.join()

    def resume(self) -> None:
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.ending.wait)
        self.thread.start()


def test_a_display_rests_while_processes_start_and_costs_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    display, threads = Display(), list[int]()
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: threads.append(threading.active_count()) or fork())
    monkeypatch.setattr(workers, "COMPANIONS", [display])
    try:
        assert spread(lambda index: index, BIG) == list(range(7))
        assert display.thread.is_alive()
    finally:
        display.pause()
    assert threads == [1]
    assert no_children_are_left()


def test_a_display_that_does_not_rest_leaves_the_work_to_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck(Display):
        def pause(self) -> None:
            """Wait for a terminal that takes nothing."""

        def resume(self) -> None:
            super().resume()
            self.resume = lambda: None  # type: ignore[method-assign]

    display = Stuck()
    monkeypatch.setattr(workers, "COMPANIONS", [display])
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked beside a thread"))
    try:
        assert spread(lambda _: os.getpid(), BIG) == [os.getpid()] * 7
    finally:
        Display.pause(display)
