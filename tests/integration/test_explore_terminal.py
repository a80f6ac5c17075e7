"""The real program in a real terminal, on a real tree."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest
from elf_images import Image
from terminal import terminal

from buildmatrix import cli

EXPLORE = (sys.executable, "-m", "buildmatrix", "explore")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    site = tmp_path / "tree/usr/lib/python3/site-packages"
    folder = site / "gradients"
    folder.mkdir(parents=True)
    (folder / "libgradients.so").write_bytes(Image(needed=("libcudart.so.12",)).build())
    (folder / "[red]libevil\x1b[2J.so").write_bytes(Image().build())
    info = site / "gradients-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gradients\nVersion: 2.0\n")
    (info / "RECORD").write_text(
        "gradients/libgradients.so,,\ngradients-2.0.dist-info/METADATA,,\n"
    )
    return tmp_path


def test_a_person_looks_through_a_tree(tree: Path) -> None:
    with terminal(tree, *EXPLORE, "tree", "--backend", "cpu", NO_COLOR="1") as screen:
        screen.until("gradients 2.0")
        screen.until("dir:tree")
        screen.until("2 Distributions")
        screen.press("3")
        screen.until("[red]libevil\\x1b[2J.so")
        screen.until("libgradients.so")
        screen.press("/libgrad\r")
        screen.until(" /libgrad")
        screen.press("w")
        screen.until("why usr/lib/python3/site-packages/gradients/libgradients.so")
        screen.until("gradients 2.0")
        screen.press("q")
        screen.until("? help")
        screen.press("q")
        assert screen.ended() == 0
        # No color at all, and the terminal is given back as it was.
        assert b"\x1b[31m" not in screen.raw and b"\x1b[38" not in screen.raw
        assert screen.raw.rindex(b"\x1b[?1049l") > screen.raw.rindex(b"\x1b[?1049h")


def test_sixteen_colors_are_enough(tree: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/explore.md").read_text()
    (line,) = re.findall(r"^buildmatrix explore (\.venv .*)$", page, re.MULTILINE)
    (tree / "tree").rename(tree / ".venv")
    with terminal(tree, *EXPLORE, *line.split(), TERM="xterm-16color") as screen:
        screen.until("gradients 2.0")
        screen.press("\x03")
        assert screen.ended() == 0
        assert b"\x1b[38;2" not in screen.raw and b"\x1b[38;5" not in screen.raw
        assert b"\x1b[48;2" not in screen.raw


def test_a_signal_gives_the_terminal_back(tree: Path) -> None:
    with terminal(tree, *EXPLORE, "tree", "--backend", "cpu") as screen:
        screen.until("gradients 2.0")
        screen.process.send_signal(signal.SIGTERM)
        assert screen.ended() == 130
        assert screen.raw.rindex(b"\x1b[?1049l") > screen.raw.rindex(b"\x1b[?1049h")


def test_what_cannot_be_read_is_said_before_a_screen_opens(tree: Path) -> None:
    with terminal(tree, *EXPLORE, "dir:nowhere") as screen:
        assert screen.ended() == 3
        assert b"\x1b[?1049h" not in screen.raw and "nowhere" in screen.text


def test_without_a_terminal_it_says_so(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree)
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", "tree"])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert error.startswith("buildmatrix: explore needs a terminal;") and error.count("\n") == 1


def test_without_the_extra_it_names_it(tree: Path) -> None:
    # A folder that hides the real one, with what `find_spec` calls "not installed".
    hiding = tree / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'textual' else find(name, *rest)\n"
    )
    with terminal(tree, *EXPLORE, "tree", PYTHONPATH=str(hiding)) as screen:
        assert screen.ended() == 5
        assert "pip install 'buildmatrix[explore]'" in " ".join(screen.text.split())
