"""Threads side by side: their answers, their failures, and Ctrl-C."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from buildmatrix.threads import Crew, side_by_side


def test_answers_come_in_the_order_of_the_items() -> None:
    def work(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    assert side_by_side(work, (0.05, 0.0, 0.02), 3, "t") == (0.05, 0.0, 0.02)


def test_no_more_than_the_jobs_run_at_once() -> None:
    lock = threading.Lock()
    running = most = 0

    def work(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    side_by_side(work, range(12), 3, "t")

    assert most <= 3


def test_a_failure_is_raised_and_what_has_not_begun_is_not_done() -> None:
    begun: list[int] = []
    stopped = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("zero")
        stopped.wait(30)

    with pytest.raises(ValueError, match="zero"):
        list(Crew(work, 2, "t", stop=stopped.set).answers(range(9)))

    assert set(begun) <= {0, 1, 2}


def test_a_loop_that_is_left_early_stops_the_others() -> None:
    stopped = threading.Event()

    def work(number: int) -> int:
        if number:
            stopped.wait(30)
        return number

    for number, _ in Crew(work, 2, "t", stop=stopped.set).answers(range(9)):
        assert number == 0
        break

    assert stopped.is_set()


def test_a_crew_that_is_sent_home_still_delivers_what_had_begun() -> None:
    stopped = threading.Event()
    second = threading.Event()
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 0:
            second.wait(30)
        else:
            second.set()
            stopped.wait(30)
        return number

    crew = Crew(work, 2, "t", stop=stopped.set)
    done = []
    for number, _ in crew.answers(range(9)):
        done.append(number)
        crew.send_home()

    assert sorted(done) == sorted(begun)
    assert {0, 1} <= set(done) <= {0, 1, 2}


#: Says "ready", then works until it is interrupted: its threads deliver answers all the time.
PROGRAM = """
import signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from buildmatrix.threads import Crew
print("ready", flush=True)
try:
    for _ in Crew(lambda number: time.sleep(0.003), 4, "t").answers(range(4000)):
        pass
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), signal.getsignal(signal.SIGINT).__name__)
"""


def test_ctrl_c_ends_a_crew_whenever_it_comes() -> None:
    for moment in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout as lines:
            assert lines.readline() == "ready\n"
            time.sleep(0.02 + moment * 0.0231)
            process.send_signal(signal.SIGINT)
            told = lines.read()
        assert process.wait(30) == 0
        assert told == "interrupted 1 default_int_handler\n"


@pytest.fixture
def in_the_foreground() -> Iterator[None]:
    """As a shell starts a program; jobs in its background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_after_the_last_answer_is_not_lost(in_the_foreground: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        for _ in Crew(lambda number: number, 1, "t").answers([1]):
            signal.raise_signal(signal.SIGINT)
