"""Only one run works in a state folder."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from buildmatrix.errors import BuildError
from buildmatrix.progress import Silent
from buildmatrix.state.folder import State

HOLDER = """
import sys
from pathlib import Path
from buildmatrix.state.folder import State
from buildmatrix.progress import Silent
with State(Path(sys.argv[1])).held(Silent()):
    print("held", flush=True)
    sys.stdin.read()
"""


class Notes(Silent):
    """A progress that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.noted = threading.Event()

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.noted.set()


def test_git_ignores_a_folder_that_is_new_and_no_other(tmp_path: Path) -> None:
    with State(tmp_path / "new" / "state").held(Silent()):
        assert (tmp_path / "new" / ".gitignore").read_text() == "*\n"
    (tmp_path / "kept").mkdir()
    with State(tmp_path / "kept" / "state").held(Silent()):
        assert not (tmp_path / "kept" / ".gitignore").exists()


def test_the_folder_is_made(tmp_path: Path) -> None:
    with State(tmp_path / "a" / "b").held(Silent()):
        assert (tmp_path / "a" / "b").is_dir()


def test_a_second_run_says_whom_it_waits_for_and_goes_on_when_that_one_is_killed(
    tmp_path: Path,
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    progress, got_in = Notes(), threading.Event()

    def wait() -> None:
        with State(tmp_path).held(progress):
            got_in.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert progress.noted.wait(300)
    assert not got_in.is_set()
    holder.kill()
    holder.wait()

    assert got_in.wait(300)
    thread.join()
    holder.stdin.close()
    holder.stdout.close()
    assert len(progress.notes) == 1
    assert f"process {holder.pid}" in progress.notes[0]


def test_nobody_waits_for_a_run_that_ended(tmp_path: Path) -> None:
    progress = Notes()
    for _ in range(2):
        with State(tmp_path).held(progress):
            pass

    assert progress.notes == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(BuildError, match="state"), State(tmp_path / "state" / "x").held(Silent()):
        pass
