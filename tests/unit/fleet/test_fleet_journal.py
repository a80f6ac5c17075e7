import errno
import os
from pathlib import Path

import pytest
from fleet_cases import results_of
from fleet_steps import digest_of

from buildmatrix.base.errors import UsageError
from buildmatrix.fleet.running import ResultJournal
from buildmatrix.reports.fleet import FleetResult


def result(number: int) -> FleetResult:
    return FleetResult(repository="registry.test/a", digest=digest_of(number), state="passed")


def test_what_was_written_is_there_before_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with ResultJournal(path) as journal:
        for number in range(3):
            journal.write(result(number))
            with path.open("rb") as file:
                assert [item.digest for item in results_of(file)] == [
                    digest_of(done) for done in range(number + 1)
                ]


def test_a_run_begins_its_lines_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("of an earlier run\n")
    with ResultJournal(path) as journal:
        journal.write(result(1))
    assert path.read_bytes().count(b"\n") == 1


def test_a_line_that_a_full_disk_took_in_part_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines"
    real, room = os.write, 700

    def write(number: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = real(number, data[:room])
        room -= taken
        return taken

    with ResultJournal(path) as journal:
        journal.write(result(0))
        size = path.stat().st_size
        room = size // 2
        monkeypatch.setattr(os, "write", write)
        journal.write(result(1))
        journal.write(result(2))
        assert journal.trouble == f"{path} can no longer be written: no space left on device"
    monkeypatch.undo()
    with path.open("rb") as file:
        assert [item.digest for item in results_of(file)] == [digest_of(0)]
    assert path.stat().st_size == size


def test_a_folder_is_no_file_for_lines(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: is a directory"):
        ResultJournal(tmp_path)
