"""Totals and rates of long work: words, pace of plain lines, and what readers report."""

from __future__ import annotations

import io
import re
import tarfile
import threading
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from buildmatrix.cli import progress as displays
from buildmatrix.cli.options import CommandSettings
from buildmatrix.cli.progress import CALM, LiveTable, Part, PlainLines, progress
from buildmatrix.layers.image import LayerBlob, LayerReader
from buildmatrix.progress import Silent
from buildmatrix.store.cache import Cache

MB = 1_000_000


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(displays, "time", clock)
    return clock


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


def test_plain_lines_come_at_a_calm_pace(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines(verbose=False)
    for second in range(0, 36):
        clock.now = 1000.0 + second
        lines.part("layers", second * 10 * MB, 350 * MB, "bytes")
    printed = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in printed] == [
        "100.0 MB of 350.0 MB, 10.0 MB/s, 25 s left",
        "200.0 MB of 350.0 MB, 10.0 MB/s, 15 s left",
        "300.0 MB of 350.0 MB, 10.0 MB/s, 5 s left",
        "350.0 MB of 350.0 MB, 10.0 MB/s",
    ]
    assert CALM == 10


def test_what_is_done_at_once_has_no_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = PlainLines(verbose=False)
    lines.part("layers", 0, 0, "bytes")
    lines.part("wheels", 0, None, "wheels")
    for done in range(6):
        clock.now += 1
        lines.part("layers", done, 5, "bytes")
    assert capsys.readouterr().err == ""


def test_a_new_step_counts_anew(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines(verbose=False)
    lines.step("wheels", "lists of files of 40")
    lines.part("wheels", 40, 40, "wheels")
    clock.now += 60
    lines.step("wheels", "beginnings of 2")
    lines.part("wheels", 1, 2, "wheels")
    assert "1 of 2" not in capsys.readouterr().err


def shown(table: LiveTable) -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


def test_the_live_table_shows_totals_and_rates(clock: Clock) -> None:
    table = LiveTable()
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


def test_a_still_display_moves_when_it_is_told_something_and_has_no_thread(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What forks as it works would lose its other processes beside a thread."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    threads = threading.active_count()
    with progress(CommandSettings(Path("x.toml"), False, False, False), is_still=True) as display:
        assert threading.active_count() == threads
        display.part("dir:x", 1, 900, "files")
        assert "1 of 900 files" in terminal.getvalue()
        display.part("dir:x", 2, 900, "files")
        assert "2 of 900 files" not in terminal.getvalue()
        clock.now += 1
        display.part("dir:x", 300, 900, "files")
        assert "300 of 900 files" in terminal.getvalue()
        display.part("dir:x", 900, 900, "files")
    assert "900 of 900 files" in terminal.getvalue()
