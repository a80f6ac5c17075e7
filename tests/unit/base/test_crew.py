"""Threads side by side: their answers, their failures, and Ctrl-C."""

import ast
import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import _base
from pathlib import Path
from types import FrameType

import pytest

from buildmatrix.base import threads
from buildmatrix.base.threads import Crew, side_by_side

#: Seconds after which a test hangs.
PATIENCE = 300


def test_answers_come_in_the_order_of_the_items() -> None:
    done = [threading.Event() for _ in range(4)]
    done[3].set()

    def work(number: int) -> int:
        assert done[number + 1].wait(PATIENCE)
        done[number].set()
        return number

    assert side_by_side(work, range(3), 3, "t") == (0, 1, 2)


def test_no_more_than_the_jobs_run_at_once() -> None:
    lock = threading.Lock()
    three = threading.Barrier(3)
    running = most = 0

    def work(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        three.wait(PATIENCE)
        with lock:
            running -= 1
        # Nobody begins again before all three have ended.
        three.wait(PATIENCE)

    side_by_side(work, range(12), 3, "t")

    assert most == 3


def test_a_failure_is_raised_and_what_has_not_begun_is_not_done() -> None:
    begun: list[int] = []
    stopped = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("zero")
        stopped.wait(PATIENCE)

    with pytest.raises(ValueError, match="zero"):
        list(Crew(work, 2, "t", stop=stopped.set).answers(range(9)))

    assert set(begun) <= {0, 1, 2}


def test_a_loop_that_is_left_early_stops_the_others() -> None:
    stopped = threading.Event()

    def work(number: int) -> int:
        if number:
            stopped.wait(PATIENCE)
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
            second.wait(PATIENCE)
        else:
            second.set()
            stopped.wait(PATIENCE)
        return number

    crew = Crew(work, 2, "t", stop=stopped.set)
    done = []
    for number, _ in crew.answers(range(9)):
        done.append(number)
        crew.send_home()

    assert sorted(done) == sorted(begun)
    assert {0, 1} <= set(done) <= {0, 1, 2}


@pytest.fixture
def in_the_foreground() -> Iterator[None]:
    """As a shell starts a program; jobs in its background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


#: Says "ready" at an answer, and goes on until it is interrupted: the last items wait for that.
PROGRAM = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
from buildmatrix.base.threads import Crew
stopped = threading.Event()
answers = 0
crew = Crew(lambda number: number < 900 or stopped.wait(), 4, "t", stopped.set)
try:
    for _ in crew.answers(range(999)):
        answers += 1
        if answers == int(sys.argv[1]):
            print("ready", flush=True)
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), signal.getsignal(signal.SIGINT).__name__)
"""


@pytest.mark.parametrize("answers", [1, 40, 900])
def test_ctrl_c_ends_a_crew_at_work(answers: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(answers)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as lines:
        assert lines.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        told = lines.read()
    assert process.wait(PATIENCE) == 0
    assert told == "interrupted 1 default_int_handler\n"


def interrupt_at(moment: int, action: Callable[[], object]) -> bool:
    """Run `action` with Ctrl-C at a step of this thread; False when it ended before that step.

    A step is an instruction of `buildmatrix.base.threads`, or of a future, which has a lock.
    """
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        nonlocal steps
        if frame.f_code.co_filename not in (threads.__file__, _base.__file__):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == moment:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return steps >= moment


def test_ctrl_c_ends_a_crew_whenever_it_comes(in_the_foreground: None) -> None:
    def work() -> None:
        for _ in Crew(lambda number: number, 2, "t").answers(range(2)):
            pass

    # Other tests of this process may have left some.
    others = set(threading.enumerate())
    for moment in itertools.count(1):
        interrupted = False
        try:
            if not interrupt_at(moment, work):
                break
        except KeyboardInterrupt:
            interrupted = True
        assert interrupted, moment
        for thread in set(threading.enumerate()) - others:
            thread.join(PATIENCE)
        assert set(threading.enumerate()) <= others, moment
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, moment
    assert moment > 100


def test_ctrl_c_after_the_last_answer_is_not_lost(in_the_foreground: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        for _ in Crew(lambda number: number, 1, "t").answers([1]):
            signal.raise_signal(signal.SIGINT)


#: A struct with a struct in it. Of the latter's annotations, one is evaluated once the former is
#: known without its field, and has another thread decode that.
HALF_KNOWN = """
import threading, msgspec
from buildmatrix.base.threads import prepare_type

class Inner(msgspec.Struct):
    value: "decode_beside()"

class Outer(msgspec.Struct):
    inner: Inner

def decode():
    begins.set()
    decoded.append(msgspec.json.decode(b'{"inner": {"value": 1}}', type=prepare_type(Outer)))

def decode_beside():
    beside.start()
    begins.wait()
    beside.join(0.5)
    return int

begins, decoded, beside = threading.Event(), [], threading.Thread(target=decode)
decode()
beside.join()
assert [outer.inner.value for outer in decoded] == [1, 1]
"""


def test_threads_decode_a_type_that_neither_has_decoded_before() -> None:
    done = subprocess.run([sys.executable, "-c", HALF_KNOWN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_type_is_prepared_before_it_is_decoded() -> None:
    """Calls by which msgspec learns a type: `Decoder(T)`, `decode(..., type=T)`, `convert(..., T)`.

    `msgspec.inspect.type_info(T)` is one, too: beside a `convert` it ended the process.
    """
    unprepared, prepared = [], 0
    for path in Path(threads.__file__).parents[1].rglob("*.py"):
        text = path.read_text()
        if path == Path(threads.__file__) or "msgspec" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call):
                continue
            match ast.unparse(call.func).split("."):
                case ["msgspec", _, "Decoder"]:
                    types = call.args[:1]
                case ["msgspec", "convert"]:
                    types = call.args[1:2]
                case ["inspect", "type_info"]:
                    types = call.args[:1]
                case ["msgspec", _, "decode"]:
                    types = []
                case _:
                    continue
            types += [keyword.value for keyword in call.keywords if keyword.arg == "type"]
            for kind in map(ast.unparse, types):
                if kind.startswith("prepare_type("):
                    prepared += 1
                elif kind not in ("str", "dict[str, msgspec.Raw]"):  # no struct
                    unprepared.append(f"{path}:{call.lineno}: {kind}")
    assert not unprepared
    assert prepared > 40
