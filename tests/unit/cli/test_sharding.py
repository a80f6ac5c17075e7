"""Where the times come from that `--shard` is balanced by: reports, and state folders by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.cli.shards import Sharding
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.judge.model import TargetResult
from buildmatrix.matrix.matrix import Shard
from buildmatrix.reports.formats import RUN
from buildmatrix.reports.run import assemble
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import State

TARGETS = [replace(target("cpu"), id=f"cpu-py311-{name}") for name in "abcd"]


def report(path: Path, seconds: Mapping[str, float], *, cached: bool = False) -> Path:
    results = [
        TargetResult(f"cpu-py311-{name}", "cpu", gates={}, seconds=taken, cached=cached)
        for name, taken in seconds.items()
    ]
    result = CommandResult(assemble("buildmatrix.toml", "2026-11-23", targets=results), 0, RUN)
    path.write_text(result.render("json"))
    return path


def parts(*timings: Path) -> list[str]:
    """The letters of each of two shards."""
    shards = [Sharding(Shard(number, 2), timings).of(TARGETS, lambda *_: None) for number in (1, 2)]
    return ["".join(item.id[-1] for item in shard.targets) for shard in shards]


def test_the_seconds_of_reports_divide_and_the_longest_of_a_target_counts(tmp_path: Path) -> None:
    assert parts() == ["ab", "cd"]
    last = report(tmp_path / "last.json", {"a": 100, "b": 10, "c": 10, "d": 10})
    assert parts(last) == ["a", "bcd"]
    other = report(tmp_path / "other.json", {"b": 90})
    assert parts(last, other) == parts(other, last) == ["ad", "bc"]
    assert parts(report(tmp_path / "d.json", {"a": 1, "b": 1, "c": 1, "d": 50})) == ["d", "abc"]


def test_what_was_done_already_says_no_time(tmp_path: Path) -> None:
    nothing = report(tmp_path / "nothing.json", dict.fromkeys("abcd", 0.0))
    assert parts(nothing) == ["ab", "cd"]
    # Its smoke commands ran again.
    known = report(tmp_path / "known.json", {"a": 90, "b": 1, "c": 1, "d": 1}, cached=True)
    assert parts(known) == ["ab", "cd"]


def test_a_state_folder_is_the_journal_of_a_machine(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    for item, taken in zip(TARGETS, (5.0, 5.0, 5.0, 200.0), strict=True):
        files = state.target_files(item.id)
        files.folder.mkdir(parents=True)
        files.inventory.write_text("{}")
        record = state_folder.BuildRecord(
            key="k",
            digest="sha256:a",
            config=None,
            loaded=False,
            tags=(),
            inventory=state_folder.file_sha256(files.inventory),
            seconds=taken,
        )
        state_folder.write(files, record)
    assert parts(tmp_path / "state") == ["d", "abc"]


def test_what_is_no_report_and_what_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("[]")
    for name in ("no.json", "gone.json"):
        with pytest.raises(UsageError, match=name):
            parts(tmp_path / name)
