"""The linter of wording finds what it lists, with its place and cure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools/language.py"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.md", "Files are of no use here.\n", "1: of no use -> not usable on, unused"),
        ("a.md", "Targets.\n\nThey are no more.\n", "3: are no more -> removed, no longer exist"),
        (
            "a.py",
            '"""What it does."""\n',
            '1: docstring "What ..." -> a noun phrase, or "Return ..."',
        ),
        ("a.py", "x = 1\n\n\ndef _told():\n    pass\n", "4: def _told -> a verb, or a noun for"),
    ],
)
def test_wording_has_a_place_and_a_cure(tmp_path: Path, name: str, text: str, found: str) -> None:
    (tmp_path / name).write_text(text)
    run = subprocess.run(
        [sys.executable, TOOL, tmp_path], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.count("\n")) == (1, 1)
    assert f"{name}:{found}" in run.stdout


def test_plain_english_passes(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""Return the size."""\n')
    run = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, check=False)
    assert (run.returncode, run.stdout) == (0, b"")
