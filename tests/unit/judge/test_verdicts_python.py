"""What is said of distributions whose Python code asks for libraries, read from real source."""

from __future__ import annotations

from pathlib import Path

import pytest
from rulecases import of_image, target, verdict

from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.judge.certainty import name_unparsed_python

SITE = "usr/lib/python3.11/site-packages"


def judged(root: Path, source: str) -> tuple[str, str]:
    """Verdict and reason of a distribution with `source` as its `__init__.py`, on cpu."""
    site = root / SITE
    (site / "pkg").mkdir(parents=True)
    (site / "pkg/__init__.py").write_text(source)
    metadata = site / "pkg-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("pkg/__init__.py,,\n")
    with DirectoryTree(root) as tree:
        one = verdict("cpu", collect(tree), "pkg")
    return one.verdict, one.reason


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from ctypes import CDLL as L\nL('libcudart.so.12')\n", "broken"),
        ("from ctypes import cdll\ncdll['libcudart.so.12']\n", "broken"),
        ("import ctypes\nctypes.CDLL(mode=1, name='libcudart.so.12')\n", "broken"),
    ],
)
def test_an_import_fails_without_the_library_however_it_asks(
    tmp_path: Path, source: str, expected: str
) -> None:
    assert judged(tmp_path, source)[0] == expected


def read(root: Path, **modules: str) -> Inventory:
    """The inventory of a distribution with these modules, some of which are no Python."""
    judged(root, modules.pop("init"))
    for name, source in modules.items():
        (root / SITE / f"pkg/{name}.py").write_text(source)
    listed = "".join(f"pkg/{name}.py,,\n" for name in ("__init__", *modules))
    (root / SITE / "pkg-1.0.dist-info/RECORD").write_text(listed)
    with DirectoryTree(root) as tree:
        return collect(tree)


def test_code_that_an_import_runs_and_nobody_can_read_leaves_the_verdict_open(
    tmp_path: Path,
) -> None:
    inventory = read(tmp_path, init="from . import a\n", a="CDLL = = 1\n", b="CDLL = = 1\n")
    (one,) = name_unparsed_python([verdict("cpu", inventory, "pkg")], inventory)
    assert (one.verdict, one.certain, one.may_be) == ("ok", False, "broken")
    assert one.open == (
        "1 Python file that its import runs not read whole and 1 other Python file not read whole"
    )
    findings = of_image(target("cpu"), inventory)
    assert [item.path for item in findings if item.rule == "BM902"] == [f"{SITE}/pkg/a.py"]


def test_code_that_no_import_gets_to_decides_nothing(tmp_path: Path) -> None:
    inventory = read(tmp_path, init="", test_py2="CDLL = = 1\n")
    (one,) = name_unparsed_python([verdict("cpu", inventory, "pkg")], inventory)
    assert (one.verdict, one.certain) == ("ok", True)
    assert one.open == "1 other Python file not read whole"
    assert "BM902" not in {item.rule for item in of_image(target("cpu"), inventory)}
