"""Every command on fixed inputs: what it prints, and its exit code.

After a wanted change: `UPDATE_GOLDEN=1 python -m pytest tests/unit/golden`, and read the diff. A
new case is a line `$ COMMAND` in a file of `cases/`, then the same command. `golden_world` has the
inputs, `fake_engine` what an `engine.json` can say.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import golden_inside
import golden_world
import pytest
from golden_run import Terminal, clean, transcript
from index import IndexServer

#: Read before a test takes this machine out of the environment.
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[IndexServer, Path, Path]]:
    """The inputs, served as an index, with the locks of the specification; and a home folder."""
    place = tmp_path_factory.mktemp("golden")
    world, home = place / "world", place / "home"
    golden_world.write(world)
    (home / "bin").mkdir(parents=True)
    git = shutil.which("git")
    assert git is not None, "these tests need git"
    (home / "bin/git").symlink_to(git)
    # uv asks an interpreter what it resolves for.
    (home / "bin/python3").symlink_to(sys.executable)
    with IndexServer(world / "wheels", pages="json", metadata=True) as index:
        yield index, world, home


@pytest.fixture
def terminal(
    served: tuple[IndexServer, Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Terminal:
    index, world, home = served
    shell = clean(monkeypatch, home, index.url)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    if not (world / "locks").exists():
        monkeypatch.chdir(world)
        _, err, code = Terminal(world, capsys, shell).run("buildmatrix -q lock")
        assert code == 0, err
    folder = tmp_path / "here"
    shutil.copytree(world, folder, symlinks=True)
    monkeypatch.chdir(folder)
    golden_inside.replace_the_outside(folder, monkeypatch)
    return Terminal(folder, capsys, shell)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_command_says_what_it_said(path: Path, terminal: Terminal) -> None:
    case = path.read_text()
    given = transcript(case, terminal.run)
    assert given.count("\n$ buildmatrix ") + given.startswith("$ buildmatrix") > 0, "no command"
    if UPDATE:
        path.write_text(given)
        case = given
    lines = unified_diff(case.splitlines(), given.splitlines(), "expected", "given", lineterm="")
    assert given == case, "\n".join(lines)
