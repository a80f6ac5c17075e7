"""Telling whether a lock fits its inputs, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lock_cases import CPU, spec_of

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError
from buildmatrix.locks.pylock import document, input_values, inputs_digest
from buildmatrix.locks.status import staleness
from buildmatrix.locks.target_requirements import read_target_requirements
from buildmatrix.matrix.model import Base, Target

BODY = 'lock-version = "1.0"\ncreated-by = "uv"\npackages = []\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a current lock for the CPU target."""
    (tmp_path / "requirements.in").write_text("-r more.in\nnumpy\n")
    (tmp_path / "more.in").write_text("onnx\n")
    values = input_values(tmp_path, CPU, read_target_requirements(tmp_path, CPU))
    (tmp_path / "locks").mkdir()
    (tmp_path / CPU.lock).write_text(document(BODY, "0.13.8", values, {}))
    return tmp_path


def reason(root: Path, one: Target = CPU) -> str | None:
    return staleness(spec_of(root, one), one)


def test_a_lock_with_its_inputs_is_current(root: Path) -> None:
    assert reason(root) is None


def test_a_lock_that_still_names_its_target_is_current(root: Path) -> None:
    path = root / CPU.lock
    head = "[tool.buildmatrix]\n"
    path.write_text(path.read_text().replace(head, f'{head}target = "any"\n'))
    assert reason(root) is None


def test_values_that_no_resolution_depends_on_leave_a_lock_current(root: Path) -> None:
    assert reason(root, replace(CPU, env={"A": "b"}, command=(), tags=())) is None


def test_a_changed_include_makes_it_stale(root: Path) -> None:
    (root / "more.in").write_text("onnx>=1\n")
    assert reason(root) == "more.in changed since the lock was made"


def test_a_new_and_a_removed_file_are_named(root: Path) -> None:
    (root / "requirements.in").write_text("numpy\n")
    assert "more.in was an input" in str(reason(root))
    (root / "requirements.in").write_text("-r more.in\nnumpy\n")
    (root / "new.in").touch()
    one = replace(CPU, requirements=("requirements.in", "new.in"))
    assert reason(root, one) == "new.in is an input now and was not when the lock was made"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": "3.12"}, "`python` was 3.11 when the lock was made and is 3.12 now"),
        ({"torch": "cu128"}, "`torch` was not set when the lock was made and is cu128 now"),
        ({"drop": ("triton",)}, "`drop` was not set when the lock was made and is triton now"),
        ({"replace": {"a": "b"}}, "`replace a` was not set when the lock was made and is b now"),
        (
            {"index": {"torch": "https://robot:s3cret@wheels.example.com/x"}},
            "`index torch` was not set when the lock was made and is "
            "https://wheels.example.com/x now",
        ),
        (
            {"base": Base("ubuntu:24.04", "ubuntu:24.04")},
            "`platform` was x86_64-manylinux_2_36 when the lock was made and is "
            "x86_64-manylinux_2_39 now",
        ),
    ],
)
def test_a_changed_value_is_told_before_and_after(
    root: Path, changes: dict[str, Any], said: str
) -> None:
    assert reason(root, replace(CPU, **changes)) == said


def test_a_missing_a_broken_and_a_foreign_lock_are_reasons_too(root: Path) -> None:
    path = root / CPU.lock
    path.write_text(BODY)
    assert reason(root) == f"{CPU.lock} does not record its inputs"
    path.write_text("[[")
    assert "not TOML" in str(reason(root))
    path.unlink()
    assert reason(root) == f"there is no {CPU.lock} yet"


def test_a_requirement_file_that_is_gone_is_an_error(root: Path) -> None:
    (root / "more.in").unlink()
    with pytest.raises(SpecError, match=r"more\.in: cannot be read"):
        reason(root)


def test_the_digest_does_not_depend_on_the_order_of_values() -> None:
    assert inputs_digest({"a": "1", "b": "2"}) == inputs_digest({"b": "2", "a": "1"})
    assert inputs_digest({"a": "1"}) != inputs_digest({"a": "2"})
