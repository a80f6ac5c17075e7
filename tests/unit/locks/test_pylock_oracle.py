"""Every `pylock.toml` that `packaging` reads is read here, with the same packages and files.

`packaging.pylock` does not serve to read them: it has no lines, ends at the first mistake, and
refuses what older releases of uv wrote (an archive without hashes).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.pylock import Pylock

from buildmatrix.base import toml
from buildmatrix.locks.pylock import Origin, document, read_lock

TESTS = Path(__file__).parents[2]
REAL = [
    path
    for path in sorted(TESTS.rglob("pylock*.toml"))
    if "lock-version" in path.read_text(errors="replace")[:500]
]
FILES = """\
lock-version = "1.0"
created-by = "uv"

[[packages]]
name = "demo"
version = "1.0+cu128"
index = "https://example.com/simple"
wheels = [
    { url = "https://e/demo-1.0%2Bcu128-py3-none-any.whl", size = 7, hashes = { sha256 = "H" } },
    { name = "demo-1.0+cu128-cp311-cp311-linux_x86_64.whl", path = "y", hashes = { sha256 = "H" } },
]

[[packages]]
name = "far"
vcs = { type = "git", url = "https://example.com/far.git", commit-id = "0123" }
""".replace('"H"', f'"{"ab" * 32}"')


def same(path: Path) -> int:
    theirs = Pylock.from_dict(toml.loads(path.read_text()))
    ours = read_lock(path).packages
    assert [(one.name, one.version) for one in ours] == [
        (one.name, str(one.version or "")) for one in theirs.packages
    ]
    for one, other in zip(ours, theirs.packages, strict=True):
        files = [(f.filename, f.hashes["sha256"], f.size) for f in other.wheels or ()]
        if other.archive is None:
            assert [(f.filename, f.sha256, f.size) for f in one.wheels] == files
    return len(ours)


@pytest.mark.parametrize("path", REAL, ids=lambda path: str(path.relative_to(TESTS)))
def test_real_locks(path: Path) -> None:
    assert same(path)


def test_there_are_real_locks() -> None:
    assert REAL


def test_what_is_written_here_is_a_lock_for_packaging_too(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    inputs = {'file a "b".txt': "sha256:12", "python": "3.11\x7f"}
    origins = {"demo": Origin("https://example.com/simple", ("a.txt:1", "x"))}
    path.write_text(document(FILES, "0.13", inputs, origins))
    assert same(path) == 2
    tool = toml.loads(path.read_text())["tool"]["buildmatrix"]
    assert tool["inputs"] == inputs
    assert tool["packages"]["demo"] == {
        "index": "https://example.com/simple",
        "via": ["a.txt:1", "x"],
    }
