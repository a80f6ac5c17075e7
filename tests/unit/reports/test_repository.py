"""What formats know of files and the day."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from buildmatrix.base.errors import UsageError
from buildmatrix.reports import formats
from buildmatrix.reports.formats import text_below, time_of_writing


def test_only_files_of_the_repository_are_read(tmp_path: Path, monkeypatch) -> None:
    top = tmp_path / "repo"
    folder = top / "services"
    folder.mkdir(parents=True)
    (top / "base.in").write_text("numpy\n")
    (tmp_path / "secret").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "bytes").write_bytes(b"\xff\xfe")
    os.mkfifo(folder / "pipe")
    assert text_below(top, folder, "../base.in") == "numpy\n"
    assert text_below(top, folder, str(top / "base.in")) == "numpy\n"
    outside = ("../../secret", "link", "/etc/passwd", str(tmp_path / "secret"))
    for name in (*outside, "loop", "pipe", "bytes", "no", "", ".", "\0", "a" * 10_000):
        assert text_below(top, folder, name) is None, name
    monkeypatch.setattr(formats, "_LARGEST_TEXT", 5)
    assert text_below(top, folder, "../base.in") is None


def test_the_day_is_that_of_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert time_of_writing() == datetime(1970, 1, 2, tzinfo=UTC)
    for odd in ("x", "1e99", "9" * 40, "-" + "9" * 40):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", odd)
        with pytest.raises(UsageError, match="write seconds since"):
            time_of_writing()
