"""Totals and rates of long work: words, pace of plain lines, and what readers report."""

from __future__ import annotations

import io
import re
import tarfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import get_args

import click
import pytest
from rich.console import Console

from buildmatrix.base.progress import Ending, Silent
from buildmatrix.cli import COMMANDS, console, displays, group, machines
from buildmatrix.cli import progress as running
from buildmatrix.cli.displays import CALM, REFRESHES_PER_SECOND, LiveTable, Part, PlainLines
from buildmatrix.cli.options import CommandSettings, add_global_options
from buildmatrix.cli.progress import Ticker, progress
from buildmatrix.facts.inventory.workers import COMPANIONS
from buildmatrix.images.image import LayerBlob, LayerReader
from buildmatrix.images.store.cache import Cache

MB = 1_000_000


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(
    ("done", "total", "unit", "seconds", "words"),
    [
        (200 * MB, 806 * MB, "bytes", 4.0, "200.0 MB of 806.0 MB, 50.0 MB/s, 12 s left"),
        (806 * MB, 806 * MB, "bytes", 4.0, "806.0 MB of 806.0 MB, 201.5 MB/s"),
        # A total that nobody knows, none at all, and one that was wrong.
        (200 * MB, None, "bytes", 4.0, "200.0 MB, 50.0 MB/s"),
        (0, 0, "bytes", 0.0, "0 B"),
        (0, 0, "bytes", 60.0, "0 B"),
        (0, None, "wheels", 60.0, "0 wheels"),
        (9 * MB, 8 * MB, "bytes", 0.5, "9.0 MB"),
        # Nothing is said of a rate before there is one.
        (5 * MB, 50 * MB, "bytes", 0.5, "5.0 MB of 50.0 MB"),
        (12, 57, "wheels", 2.0, "12 of 57 wheels, 8 s left"),
        (0, 20, "targets", 600.0, "0 of 20 targets"),
        (3, 20, "targets", 600.0, "3 of 20 targets, 57 min left"),
        # So little says nothing of the rest, which may be quite another kind of work.
        (1, 1000, "targets", 3600.0, "1 of 1000 targets"),
        (100, 1000, "targets", 36000.0, "100 of 1000 targets, 90 h left"),
    ],
)
def test_words(done: int, total: int | None, unit: str, seconds: float, words: str) -> None:
    assert Part(100.0, 0, unit, done, total).words(100.0 + seconds) == words


def test_what_was_done_before_the_clock_started_is_no_rate() -> None:
    part = Part(0.0, 100 * MB, "bytes", 110 * MB, 200 * MB)
    assert part.words(10.0) == "110.0 MB of 200.0 MB, 1.0 MB/s, 90 s left"


#: Seconds, and how many files of 60 were judged: `fleet audit` of 60 clones of public projects on a
#: busy machine, on 2026-11-23. Large locks came first, and what repeats them was known by then.
HEAVY_FIRST = (
    (0, 0), (72, 2), (152, 4), (164, 6), (202, 8), (260, 10), (280, 12), (298, 16), (335, 20),
    (346, 26), (356, 28), (374, 34), (385, 38), (398, 40), (417, 48), (430, 52), (442, 56),
    (450, 60),
)  # fmt: skip
#: The same of 75 clones with 118 files, which took one as long as another.
STEADY = (
    (0, 0), (23, 3), (43, 6), (63, 12), (109, 15), (145, 21), (178, 23), (197, 28), (227, 37),
    (256, 40), (303, 42), (314, 45), (335, 51), (356, 57), (373, 62), (405, 67), (416, 69),
    (429, 71), (447, 75), (483, 78), (521, 81), (532, 86), (542, 91), (560, 94), (571, 96),
    (582, 104), (640, 118),
)  # fmt: skip


#: Images of 100 that `fleet scan` judged for the first time, on the same day and machine: layers of
#: some GB came first.
SCAN = (
    (0, 0), (331, 1), (350, 2), (351, 3), (361, 4), (481, 8), (603, 12), (668, 16), (688, 20),
    (709, 24), (727, 28), (749, 32), (762, 36), (787, 40), (926, 44), (960, 48), (976, 52),
    (1050, 56), (1231, 60), (1303, 64), (1318, 68), (1358, 72), (1450, 76), (1490, 80), (1813, 84),
    (1950, 88), (2010, 92), (2135, 96), (2196, 100),
)  # fmt: skip


def guesses(recorded: Sequence[tuple[int, int]]) -> dict[int, float]:
    """Second → how many times the time that was left it was said to be."""
    end, total = recorded[-1]
    part = Part(1000.0, 0, "files")
    times = {}
    for second, done in recorded[:-1]:
        part.move(done, total, 1000.0 + second)
        left = re.search(r"([0-9]+) (s|min) left", part.words(1000.0 + second))
        if left is not None:
            seconds = int(left[1]) * (60 if left[2] == "min" else 1)
            times[second] = seconds / (end - second)
    return times


def test_no_time_is_guessed_where_it_would_be_far_off() -> None:
    # By all of the time so far it was 3 to 5 times what was left, until the end.
    assert guesses(HEAVY_FIRST) == {}
    # By all of the time so far it was nearly 5 times that at first.
    times = guesses(SCAN)
    assert times
    assert all(0.5 < value < 2.5 for value in times.values())


def test_a_time_is_guessed_where_work_is_steady() -> None:
    times = guesses(STEADY)
    assert len(times) > len(STEADY) * 0.6
    # What is shown is rounded to minutes.
    assert all(0.8 < value < 2.1 for value in times.values())


def test_work_that_stopped_has_no_time_left() -> None:
    part = Part(0.0, 0, "files")
    for second in range(100):
        part.move(second, 200, float(second))
    assert part.words(99.0) == "99 of 200 files, 2 min left"
    assert part.words(600.0) == "99 of 200 files"


def test_a_long_past_takes_little_memory() -> None:
    part = Part(0.0, 0, "images")
    for number in range(100_000):
        part.move(number, 100_000, number / 10)
    assert len(part._past) < 1000


def plain(clock: Clock, *, verbose: bool = False) -> PlainLines:
    return PlainLines(verbose, "scan", clock.monotonic)


def texts(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed, without the times."""
    return [line.split(maxsplit=1)[1] for line in capsys.readouterr().err.splitlines()]


def test_plain_lines_come_at_a_calm_pace(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = plain(clock)
    for second in range(0, 36):
        clock.now = 1000.0 + second
        lines.part("layers", second * 10 * MB, 350 * MB, "bytes")
    assert texts(capsys) == [
        "[layers] 100.0 MB of 350.0 MB, 10.0 MB/s, 25 s left",
        "[layers] 200.0 MB of 350.0 MB, 10.0 MB/s, 15 s left",
        "[layers] 300.0 MB of 350.0 MB, 10.0 MB/s, 5 s left",
        "[layers] 350.0 MB of 350.0 MB, 10.0 MB/s",
    ]
    assert CALM == 10


def test_what_is_done_at_once_has_no_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = plain(clock)
    lines.part("layers", 0, 0, "bytes")
    lines.part("wheels", 0, None, "wheels")
    for done in range(6):
        clock.now += 1
        lines.part("layers", done, 5, "bytes")
        lines.beat()
    assert capsys.readouterr().err == ""


def test_a_new_step_counts_anew(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = plain(clock)
    lines.step("wheels", "lists of files of 40")
    lines.part("wheels", 40, 40, "wheels")
    clock.now += 60
    lines.step("wheels", "beginnings of 2")
    lines.part("wheels", 1, 2, "wheels")
    assert "1 of 2" not in capsys.readouterr().err


def silence(lines: PlainLines, clock: Clock, seconds: float) -> float:
    """Pass time as the ticker does; the longest time from one beat to the next."""
    end, longest = clock.now + seconds, 0.0
    while (wait := lines.beat()) <= end - clock.now:
        assert wait > 0
        longest = max(longest, wait)
        clock.now += wait
    clock.now = end
    return longest


def test_a_step_that_goes_on_has_a_line_every_ten_seconds(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = plain(clock)
    lines.step("cpu", "scan")
    assert silence(lines, clock, 13) == CALM
    lines.step("cpu", "smoke import")
    lines.step("wheels", "beginnings of binaries of 9")
    clock.now += 4
    lines.part("wheels", 3, 9, "wheels")
    silence(lines, clock, 19)
    assert texts(capsys) == [
        "[cpu] scan",
        "[cpu] still: scan, 10 s",
        "[cpu] smoke import",
        "[wheels] beginnings of binaries of 9",
        "[cpu] still: smoke import, 10 s",
        "[wheels] still: beginnings of binaries of 9, 10 s, 3 of 9 wheels",
        "[cpu] still: smoke import, 20 s",
        "[wheels] still: beginnings of binaries of 9, 20 s, 3 of 9 wheels",
    ]


@pytest.mark.parametrize("ending", get_args(Ending))
def test_a_log_calls_the_end_of_a_target_as_its_report_does(
    clock: Clock, capsys: pytest.CaptureFixture[str], ending: Ending
) -> None:
    plain(clock).done("cpu", "at scan", ending)
    assert texts(capsys) == [f"[cpu] {ending}: at scan"]


@pytest.mark.parametrize("how", ["end", "done", "close"])
def test_a_step_that_has_ended_is_not_said_to_go_on(
    clock: Clock, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    lines = plain(clock)
    lines.step("wheels", "file lists of 9")
    clock.now += 1
    {
        "end": lambda: lines.end("wheels"),
        "done": lambda: lines.done("wheels", "all read", "passed"),
        "close": lines.close,
    }[how]()
    silence(lines, clock, 25)
    printed = texts(capsys)
    assert [line for line in printed if "still" in line] == ["still: scan"] * 2
    lines.step("wheels", "contents of 2")
    silence(lines, clock, 10)
    assert texts(capsys) == ["[wheels] contents of 2", "[wheels] still: contents of 2, 10 s"]


def test_a_command_of_which_nothing_is_reported_has_a_line_every_ten_seconds(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = plain(clock)
    silence(lines, clock, 9)
    # Whatever was printed by others is a sign of life.
    lines.make_room(is_error=False)
    silence(lines, clock, 9)
    assert texts(capsys) == []
    silence(lines, clock, 12)
    assert texts(capsys) == ["still: scan"] * 2


def test_what_is_only_counted_has_a_line_where_nothing_else_has(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = plain(clock)
    lines.part("targets", 0, 9, "targets")
    silence(lines, clock, 12)
    assert texts(capsys) == ["[targets] 0 of 9 targets"]
    lines.step("cpu", "scan")
    silence(lines, clock, 10)
    assert texts(capsys) == ["[cpu] scan", "[cpu] still: scan, 10 s"]
    lines.part("targets", 9, 9, "targets")
    assert texts(capsys) == ["[targets] 9 of 9 targets"]


class Waits:
    """A thread's waiting: ends when a test says so, and says how long it was to be."""

    def __init__(self) -> None:
        self.begun: SimpleQueue[float] = SimpleQueue()
        self.over: SimpleQueue[bool] = SimpleQueue()

    def __call__(self, _: threading.Event, seconds: float) -> bool:
        self.begun.put(seconds)
        return self.over.get()


def test_a_ticker_beats_in_a_thread_when_it_is_to_and_no_more_at_its_end() -> None:
    waits, beats = Waits(), list[int]()

    def beat() -> float:
        beats.append(threading.get_ident())
        return 10.0 * len(beats)

    with Ticker(beat, waits):
        for seconds in (0.0, 10.0, 20.0):
            assert waits.begun.get() == seconds
            waits.over.put(False)
        assert waits.begun.get() == 30.0
        # Its thread ends with the wait that it is in.
        waits.over.put(True)
    assert len(beats) == 3 and threading.get_ident() not in beats
    assert COMPANIONS == []


def test_a_ticker_rests_and_goes_on() -> None:
    beats: SimpleQueue[str] = SimpleQueue()

    def beat() -> float:
        beats.put(threading.current_thread().name)
        return 1000.0

    threads = threading.active_count()
    with Ticker(beat) as ticker:
        assert beats.get() == "progress"
        ticker.pause()
        assert threading.active_count() == threads
        ticker.resume()
        assert beats.get() == "progress"
    assert threading.active_count() == threads


@pytest.mark.parametrize("is_quiet", [False, True])
def test_whatever_a_command_does_its_progress_goes_on_until_its_end(
    monkeypatch: pytest.MonkeyPatch, is_quiet: bool
) -> None:
    """The work waits for the lines about it."""
    lines: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(displays, "CALM", 1e-6)
    monkeypatch.setattr(console, "complain", lines.put)

    @click.command("work")
    @click.pass_obj
    def work(_: CommandSettings) -> None:
        assert is_quiet != any(thread.name == "progress" for thread in threading.enumerate())
        for _ in range(0 if is_quiet else 2):
            assert lines.get().split(maxsplit=1)[1] == "still: work"

    parent = click.Context(group, info_name="buildmatrix")
    parent.obj = CommandSettings(Path("x.toml"), is_quiet, False, True)
    add_global_options(work).main([], "work", parent=parent, standalone_mode=False)
    assert not any(thread.name == "progress" for thread in threading.enumerate())


def every_command() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        for below, other in getattr(command, "commands", {"": command}).items():
            yield f"{name} {below}".strip(), other
    yield "preflight collect", add_global_options(machines.collect)


def test_every_command_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    class BeginsError(Exception):
        pass

    def begin(_: CommandSettings, name: str) -> None:
        raise BeginsError(name)

    monkeypatch.setattr(running, "command_progress", begin)
    for name, command in every_command():
        context = click.Context(command, info_name=name, parent=click.Context(group))
        context.obj = CommandSettings(Path("x.toml"), False, False, False)
        assert command.callback is not None
        with context, pytest.raises(BeginsError, match=f"^{name}$"):
            command.callback()


def shown(table: LiveTable) -> str:
    recorder = Console(width=100, file=io.StringIO(), record=True)
    recorder.print(table)
    return recorder.export_text()


def test_the_live_table_shows_totals_and_rates(clock: Clock) -> None:
    table = LiveTable("audit", clock.monotonic)
    table.step("wheels", "lists of files of 57")
    table.part("wheels", 0, 57, "wheels")
    table.part("wheels", 0, None, "bytes")
    clock.now += 4
    table.part("wheels", 12, 57, "wheels")
    table.part("wheels", 8 * MB, None, "bytes")
    assert "lists of files of 57  12 of 57 wheels, 15 s left, 8.0 MB, 2.0 MB/s" in shown(table)
    table.part("layers", 5 * MB, 10 * MB, "bytes")
    clock.now += 2
    assert "…  layers" in shown(table).replace("… layers", "…  layers")
    table.part("layers", 10 * MB, 10 * MB, "bytes")
    clock.now += 60
    line = next(line for line in shown(table).splitlines() if "layers" in line)
    # The clock of what has no steps has stopped, and nothing says that it was good.
    assert "2s" in line and "✓" not in line and "…" not in line
    table.part("none", 0, 0, "bytes")
    assert "0 B" in shown(table)


def test_the_clock_of_a_row_stops_with_its_step_and_goes_on_with_the_next(clock: Clock) -> None:
    table = LiveTable("build", clock.monotonic)
    table.step("cpu", "lock: resolving, round 1")
    clock.now += 5
    table.end("cpu")
    clock.now += 60
    (line,) = shown(table).splitlines()
    assert " 5s " in line and "…" not in line and "✓" not in line
    # What it waited in between is not its time.
    table.step("cpu", "scan")
    clock.now += 2
    (line,) = shown(table).splitlines()
    assert " 7s " in line and "…" in line


class Screen(io.StringIO):
    """A terminal that remembers what was written."""

    def isatty(self) -> bool:
        return True

    def news(self) -> str:
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


def on_screen(clock: Clock) -> tuple[LiveTable, Screen]:
    screen = Screen()
    terminal = Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    return LiveTable("smoke", clock.monotonic, lambda: terminal), screen


def test_a_terminal_shows_a_block_of_work_from_its_first_moment(clock: Clock) -> None:
    table, screen = on_screen(clock)
    table.open()
    assert "… smoke" in re.sub(r"\x1b\[[0-9;]*m", "", screen.news())
    clock.now += 20
    assert table.beat() == 1 / REFRESHES_PER_SECOND
    assert "20s" in screen.news()
    table.step("cpu", "smoke import")
    table.beat()
    assert "smoke import" in screen.news()
    table.done("cpu", "passed", "passed")
    table.step("cuda", "smoke import")
    table.beat()
    screen.news()
    table.close()
    # The results stay, nothing goes on in them, and no line of the command is below.
    left = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.news())
    assert "✓ cpu" in left and "smoke import" in left
    assert "…" not in left


def test_a_terminal_shows_a_command_that_reports_nothing_after_a_second(clock: Clock) -> None:
    table, screen = on_screen(clock)
    assert 0 < table.beat() <= 1
    assert screen.news() == ""
    clock.now += 1
    table.beat()
    assert "smoke" in screen.news()


def test_a_report_has_the_screen_for_itself(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    table, screen = on_screen(clock)
    clock.now += 1
    table.beat()
    screen.news()
    table.make_room(is_error=False)
    # The line is erased, and nothing is drawn until there was silence again.
    assert "\x1b[2K" in screen.news()
    assert table.beat() > 0
    assert screen.news() == ""
    table.close()
    assert screen.news() == ""


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_draw_has_plain_lines(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", term)
    with progress(CommandSettings(Path("x.toml"), False, False, False)) as display:
        display.step("cpu", "scan")
    assert screen.news().endswith("[cpu] scan\n")


class Heard(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, int, int | None, str]] = []

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        self.parts.append((target, done, total, unit))


def blob(size: int) -> LayerBlob:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("data")
        member.size = size
        archive.addfile(member, io.BytesIO(bytes(size)))
    data = packed.getvalue()

    @contextmanager
    def opened():
        yield iter([data[at : at + 100_000] for at in range(0, len(data), 100_000)])

    return LayerBlob("", len(data), opened)


def test_layers_report_the_bytes_of_all_that_are_read(tmp_path: Path) -> None:
    heard = Heard()
    blobs = [blob(300_000), blob(500_000)]
    LayerReader(Cache(None), progress=lambda: heard).layers(blobs)
    total = sum(item.size for item in blobs)
    done = [part[1] for part in heard.parts]
    assert done == sorted(done) and done[-1] == total
    assert {part[2] for part in heard.parts} == {total}


def test_a_display_opens_only_where_something_is_read() -> None:
    def opened() -> Heard:
        raise AssertionError("nothing is read")

    assert LayerReader(Cache(None), progress=opened).layers([]) == []
