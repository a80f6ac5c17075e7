"""What is said of distributions whose Python code asks for libraries, read from real source."""

from __future__ import annotations

from pathlib import Path

import pytest
from rulecases import verdict

from buildmatrix.inventory.collect import collect
from buildmatrix.trees.directory import DirectoryTree

SITE = "usr/lib/python3.11/site-packages"


def judged(root: Path, source: str, libraries: tuple[str, ...] = ()) -> tuple[str, str]:
    """Verdict and reason of a distribution with `source` as its `__init__.py`, on cpu."""
    site = root / SITE
    (site / "pkg").mkdir(parents=True)
    (site / "pkg/__init__.py").write_text(source)
    metadata = site / "pkg-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("pkg/__init__.py,,\n")
    for name in libraries:
        (root / "usr/lib" / name).symlink_to("/nowhere")
    with DirectoryTree(root) as tree:
        one = verdict("cpu", collect(tree), "pkg")
    return one.verdict, one.reason


SEARCHED = (
    "from ctypes.util import find_library\nif find_library('cudart') is None:\n    raise OSError\n"
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from ctypes import CDLL as L\nL('libcudart.so.12')\n", "broken"),
        ("from ctypes import cdll\ncdll['libcudart.so.12']\n", "broken"),
        ("import ctypes\nctypes.CDLL(mode=1, name='libcudart.so.12')\n", "broken"),
        (SEARCHED, "broken"),
        (SEARCHED.replace("raise OSError", "print(1)"), "optional"),
        (SEARCHED.replace("cudart", "crypto"), "ok"),
    ],
)
def test_an_import_fails_without_the_library_however_it_asks(
    tmp_path: Path, source: str, expected: str
) -> None:
    assert judged(tmp_path, source)[0] == expected


def test_a_search_that_finds_some_version_breaks_nothing(tmp_path: Path) -> None:
    assert judged(tmp_path, SEARCHED, ("libcudart.so.12",))[0] != "broken"


def test_a_library_with_a_longer_name_is_not_what_was_searched_for(tmp_path: Path) -> None:
    verdict, reason = judged(tmp_path, SEARCHED, ("libcudart_static.so",))
    assert verdict == "broken"
    assert f"libcudart.so* ({SITE}/pkg/__init__.py:2)" in reason
