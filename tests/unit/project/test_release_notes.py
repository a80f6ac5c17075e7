"""The text of a release is the changelog's, and a tag that does not fit is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools/release_notes.py"
CHANGELOG = """\
# Changelog

## [Unreleased]

### Added
- What is not released.

## [0.2.0] - 2026-12-01

### Added
- `audit`: see [the guide].

### Fixed
- A crash.

## [0.1.1] - 2026-11-01

## [0.1.0]

### Added
- Everything.

[the guide]: https://example.com/guide
"""


def notes(root: Path, tag: str, version: str) -> subprocess.CompletedProcess[str]:
    """The tool, run in a tree of its own as the release workflow runs it in this one."""
    for name, text in {
        "tools/release_notes.py": TOOL.read_text(),
        "src/buildmatrix/__init__.py": f'"""Package."""\n\n__version__ = "{version}"\n',
        "CHANGELOG.md": CHANGELOG,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    command = [sys.executable, root / "tools/release_notes.py", tag]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_text_is_the_section_of_the_version_and_nothing_else(tmp_path: Path) -> None:
    run = notes(tmp_path, "v0.2.0", "0.2.0")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "### Added\n- `audit`: see [the guide].\n\n### Fixed\n- A crash.\n"


@pytest.mark.parametrize(
    ("tag", "version", "message"),
    [
        ("v0.3.0", "0.2.0", "the tag is v0.3.0, and the version of the package is 0.2.0"),
        ("0.2.0", "0.2.0", "the tag is 0.2.0, and the version"),
        ("v0.3.0", "0.3.0", "CHANGELOG.md has no section `## [0.3.0] - YYYY-MM-DD`"),
        ("v0.1.1", "0.1.1", "the section of 0.1.1 is empty"),
        ("v0.1.0", "0.1.0", "the section of 0.1.0 has no date"),
        ("vUnreleased", "Unreleased", "the section of Unreleased has no date"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(
    tmp_path: Path, tag: str, version: str, message: str
) -> None:
    run = notes(tmp_path, tag, version)
    assert (run.returncode, run.stdout) == (1, "")
    assert message in run.stderr


def test_the_version_of_this_tree_can_be_read() -> None:
    run = subprocess.run([sys.executable, TOOL, "v0"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "the tag is v0, and the version of the package is" in run.stderr
