"""An audit reads the Python code of wheels before it calls them certain."""

from __future__ import annotations

import random

import pytest
from audit_index import Locked

from buildmatrix.judge.model import Verdict
from buildmatrix.reports.run import exit_code

LOAD = b"import ctypes\nctypes.CDLL('libcudart.so.12')\n"


def judged(locked: Locked, *, strict: bool = False) -> Verdict:
    (one,) = locked.audit("cpu", strict=strict).distributions
    return one


def comment(size: int) -> bytes:
    """Python that says nothing and does not pack well."""
    return b"#" + random.Random(size).randbytes(size // 2).hex().encode() + b"\n"


def large() -> dict[str, bytes]:
    """A package with more Python than is read as a whole."""
    return {f"demo/extra/m{number}.py": comment(1_000_000 + number) for number in range(4)}


def test_a_pure_wheel_whose_import_loads_a_foreign_library_is_broken(locked: Locked) -> None:
    locked.add("demo 1.0", files={"demo/__init__.py": LOAD})
    report = locked.audit("cpu")
    (one,) = report.distributions
    assert (one.verdict, one.certain) == ("broken", True)
    assert exit_code(report, "error") == 1


def test_of_much_python_what_an_import_runs_is_read(locked: Locked) -> None:
    files = {
        "demo/__init__.py": b"from . import inner\n",
        "demo/inner/__init__.py": b"def setup():\n    from .deep import x\nsetup()\n",
        "demo/inner/deep.py": LOAD,
        **large(),
    }
    locked.add("demo 1.0", files=files)
    assert judged(locked).verdict == "broken"


def test_of_much_python_what_no_import_runs_is_left_closed_and_said(locked: Locked) -> None:
    checked = b"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .extra import m1\n"
    files = {"demo/__init__.py": checked + b"def f():\n    from .extra import m0\n", **large()}
    locked.add("demo 1.0", files=files)
    one = judged(locked)
    assert (one.verdict, one.certain, one.depth) == ("ok", True, "heads")
    assert one.open is not None
    assert one.open.startswith("4 Python files that no import runs not read")


def test_modules_whose_names_are_put_together_may_all_be_run(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 300_000)
    init = b"import importlib\nfor n in range(4):\n    importlib.import_module(f'.extra.m{n}')\n"
    locked.add("demo 1.0", files={"demo/__init__.py": init, **large()})
    assert not judged(locked).certain


def test_python_that_the_budget_does_not_reach_leaves_a_pure_wheel_open(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 300_000)
    init = b"from .extra import m0, m1, m2, m3, load\n"
    files = {"demo/__init__.py": init, "demo/extra/load.py": LOAD, **large()}
    locked.add("demo 1.0", files=files)
    loose = judged(locked)
    assert (loose.certain, loose.may_be) == (False, "broken")
    assert "Python files not read, so the verdict may change" in (loose.open or "")
    strict = judged(locked, strict=True)
    assert (strict.verdict, strict.certain, strict.depth) == ("broken", True, "whole")
