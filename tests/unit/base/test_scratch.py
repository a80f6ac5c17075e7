"""Folders for a while go with their run, and those of a killed run with the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from buildmatrix.base import child as module
from buildmatrix.base.child import scratch, sweep

_HOLDING = """
import sys
from buildmatrix.base.child import scratch
with scratch("audit") as folder:
    (folder / "inputs").write_text("https://user:password@host/")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(module, "_FRESH", -1)
    module._sweep_once.cache_clear()
    return tmp_path


def start() -> tuple[subprocess.Popen[str], Path]:
    owner = subprocess.Popen(
        [sys.executable, "-c", _HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    return owner, Path(owner.stdout.readline().strip())


def end(owner: subprocess.Popen[str]) -> None:
    for stream in (owner.stdin, owner.stdout):
        if stream is not None:
            stream.close()
    owner.wait(300)


def test_a_folder_is_ours_alone_and_goes_at_the_end(place) -> None:
    with scratch("audit") as folder:
        assert folder.parent == place
        assert folder.name.startswith("buildmatrix.audit.")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("x")
    assert not [*place.iterdir()]


def test_it_goes_also_when_something_is_raised(place) -> None:
    with pytest.raises(KeyboardInterrupt), scratch("audit"):
        raise KeyboardInterrupt
    assert not [*place.iterdir()]


def test_what_a_killed_run_left_goes_with_the_next(place) -> None:
    owner, folder = start()
    owner.send_signal(signal.SIGKILL)
    end(owner)
    assert (folder / "inputs").exists()
    with scratch("lock"):
        assert not folder.exists()


def test_what_a_running_one_holds_stays(place) -> None:
    owner, folder = start()
    try:
        sweep(place)
        assert (folder / "inputs").exists()
    finally:
        end(owner)
    assert not folder.exists()


def test_what_was_made_just_now_stays(place, monkeypatch) -> None:
    monkeypatch.setattr(module, "_FRESH", 60)
    (place / "buildmatrix.audit.x").mkdir(mode=0o700)
    sweep(place)
    assert (place / "buildmatrix.audit.x").exists()


def test_nothing_else_is_touched(place) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("x")
    (place / "buildmatrix.audit.link").symlink_to(elsewhere)
    (place / "buildmatrix.audit.file").write_text("x")
    (place / "buildmatrix.audit.shared").mkdir()
    (place / "buildmatrix.audit.shared").chmod(0o755)
    (place / "other.audit.x").mkdir(mode=0o700)
    before = sorted(place.iterdir())
    sweep(place)
    assert sorted(place.iterdir()) == before
    assert (elsewhere / "file").exists()
    sweep(place / "nowhere")


def test_a_link_in_it_leads_no_removal_out_of_it(place) -> None:
    kept = place / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    left = place / "buildmatrix.try.x"
    left.mkdir(mode=0o700)
    (left / "link").symlink_to(kept)
    sweep(place)
    assert not left.exists()
    assert (kept / "file").exists()
