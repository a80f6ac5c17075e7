"""Only one run works in a state folder, and it is that of this user on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from buildmatrix.base.errors import BuildError, UsageError
from buildmatrix.base.progress import Silent
from buildmatrix.images.store import cache
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import FOLDER, State

HOLDER = """
import sys
from pathlib import Path
from buildmatrix.sources.state_folder import State
from buildmatrix.base.progress import Silent
with State(Path(sys.argv[1])).lock(Silent()):
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
    with State(tmp_path / "new" / "state").lock(Silent()):
        assert (tmp_path / "new" / ".gitignore").read_text() == "*\n"
    (tmp_path / "kept").mkdir()
    with State(tmp_path / "kept" / "state").lock(Silent()):
        assert not (tmp_path / "kept" / ".gitignore").exists()


def test_the_folder_is_made(tmp_path: Path) -> None:
    with State(tmp_path / "a" / "b").lock(Silent()):
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
        with State(tmp_path).lock(progress):
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
        with State(tmp_path).lock(progress):
            pass

    assert progress.notes == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(BuildError, match="state"), State(tmp_path / "state" / "x").lock(Silent()):
        pass


@pytest.fixture
def forget_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The cache of a user for whom nothing was read yet; calling it is a new process."""
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "buildmatrix" / state_folder.KEY_NAME
    for function in (state_folder._load_key, state_folder._transient_key, cache._tracked_file):
        function.cache_clear()


def key_of_a_new_process() -> state_folder.MachineKey:
    state_folder._load_key.cache_clear()
    state_folder._transient_key.cache_clear()
    return state_folder.machine_key()


def test_the_key_is_made_once_and_for_its_user_alone(forget_keys: Path) -> None:
    first = key_of_a_new_process()
    assert forget_keys.stat().st_mode & 0o777 == 0o600
    assert len(first.secret) == 32 and not first.trouble
    assert key_of_a_new_process() == first
    assert [path.name for path in forget_keys.parent.iterdir()] == [state_folder.KEY_NAME]


@pytest.mark.parametrize("damage", ["short", "long", "readable by others", "link", "pipe"])
def test_a_key_that_others_may_know_is_replaced(forget_keys: Path, damage: str) -> None:
    first = key_of_a_new_process()
    if damage == "readable by others":
        forget_keys.chmod(0o640)
    elif damage in ("short", "long"):
        forget_keys.write_bytes(bytes(31 if damage == "short" else 33))
    else:
        kept = forget_keys.rename(forget_keys.with_name("elsewhere"))
        forget_keys.symlink_to(kept) if damage == "link" else os.mkfifo(forget_keys, 0o600)
    second = key_of_a_new_process()
    assert second.secret != first.secret and not second.trouble
    assert key_of_a_new_process() == second


def test_runs_that_make_the_key_at_the_same_time_get_one(forget_keys: Path) -> None:
    forget_keys.parent.mkdir(parents=True)
    barrier = threading.Barrier(8)

    def make(_: int) -> bytes:
        barrier.wait()
        return state_folder._create_key(forget_keys)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(make, range(8))) == {forget_keys.read_bytes()}


def test_without_a_cache_the_key_ends_with_the_process(forget_keys: Path) -> None:
    forget_keys.parent.parent.touch()  # a file in place of the folder
    first = key_of_a_new_process()
    assert str(forget_keys) in first.trouble
    assert state_folder.machine_key() == first
    assert key_of_a_new_process().secret != first.secret


def commit(folder: Path, *names: str) -> None:
    for line in (["init", "-q"], ["add", "-f", "--", *names]):
        subprocess.run(["git", *line], cwd=folder, check=True)


@pytest.mark.parametrize("place", ["state", "behind a link"])
def test_state_that_git_tracks_is_refused(tmp_path: Path, place: str) -> None:
    folder = tmp_path / FOLDER
    if place == "behind a link":
        (tmp_path / "kept" / "state" / "cpu").mkdir(parents=True)
        folder.parent.symlink_to("kept")
    else:
        (folder / "cpu").mkdir(parents=True)
    (folder / "cpu" / "record.json").write_text("{}")
    State.beside(tmp_path)
    commit(tmp_path, ".")
    with pytest.raises(UsageError, match=r"tracked by Git \(cpu/record.json\).*git rm -r --cached"):
        State.beside(tmp_path)


def test_other_files_may_be_tracked(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "lock").touch()
    (tmp_path / ".buildmatrix" / "generated").touch()
    commit(tmp_path, ".buildmatrix/generated")
    assert State.beside(tmp_path).folder == tmp_path / FOLDER


def test_a_cache_that_git_tracks_is_refused_and_has_no_key(
    forget_keys: Path, tmp_path: Path
) -> None:
    key_of_a_new_process()
    commit(tmp_path, "cache")
    cache._tracked_file.cache_clear()
    with pytest.raises(UsageError, match=r"tracked by Git \(state.key\).*BUILDMATRIX_CACHE"):
        cache.default_folder(os.environ)
    assert "tracked by Git" in key_of_a_new_process().trouble
