"""Targets that ask the same share one resolution, and have the locks that they would have alone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fake_uv import FakeUv
from lock_cases import spec_of, target
from package_index import PackageIndex

from buildmatrix.base.data import field_names, replace
from buildmatrix.base.errors import (
    BuildmatrixError,
    ComponentError,
    SpecError,
    UndecidedError,
    UsageError,
)
from buildmatrix.base.progress import Silent
from buildmatrix.cli import main
from buildmatrix.locks import resolve
from buildmatrix.locks.model import Lock
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.locks.uv import NoSolution
from buildmatrix.matrix.model import Base, CheckWaiver, NodeClass, Position, Smoke, Target, User

#: Calls of uv for one resolution: the graph, and the lock.
EACH = 2
PLACE = Position("buildmatrix.toml", 1, 1)


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    fake = FakeUv()
    monkeypatch.setattr(resolve, "find_uv", lambda: fake)
    return fake


def locked(
    root: Path,
    targets: Sequence[Target],
    *,
    upgrade: bool | Sequence[str] = False,
    offline: bool = False,
) -> dict[str, Lock | BuildmatrixError]:
    return dict(
        lock_targets(
            spec_of(root, *targets),
            targets,
            upgrade=upgrade,
            offline=offline,
            progress=Silent(),
            jobs=2,
        )
    )


def named(id: str, **changes: Any) -> Target:
    return target(id=id, lock=f"locks/pylock.{id}.toml", **changes)


def variants(*names: str, **changes: Any) -> list[Target]:
    return [named(name, variant=name, tags=(name,), **changes) for name in names]


def write(root: Path, text: str = "numpy\n", name: str = "requirements.in") -> None:
    (root / name).write_text(text)


def test_targets_that_differ_in_nothing_that_is_asked_share_one_resolution(
    tmp_path: Path, uv: FakeUv
) -> None:
    write(tmp_path)
    targets = [
        *variants("a", "b", "c"),
        *variants("d", "e", python="3.12"),
        *variants("f", drop=("numpy",)),
    ]
    locks = locked(tmp_path, targets)
    assert list(locks) == list("abcdef")
    assert len(uv.calls) == 3 * EACH
    for item in targets:
        lock = locks[item.id]
        assert isinstance(lock, Lock)
        assert lock.path == tmp_path / item.lock
    text = (tmp_path / "locks/pylock.a.toml").read_text()
    assert 'via = ["requirements.in:1"]' in text
    # Docker's cache goes by the bytes: what is equal is installed once.
    assert (tmp_path / "locks/pylock.c.toml").read_text() == text


#: Field of a target → another value, and whether the answer depends on it.
FIELDS: dict[str, tuple[Any, bool]] = {
    "id": ("other", False),
    "project": ("other", False),
    "backend": ("cuda", False),
    "runtime": ("12.8", False),
    "runtime_values": ({"full": "12.8.1"}, False),
    "python": ("3.12", True),
    "variant": ("other", False),
    "platform": ("linux/arm64", True),
    "base": (Base("ubuntu:20.04", "ubuntu:20.04"), True),
    "requirements": (("requirements.in", "more.in"), True),
    "extras": (("boost",), True),
    "pyproject": ("pyproject.toml", True),
    "replace": ({"numpy": "idna"}, True),
    "drop": (("numpy",), True),
    "no_binary": (("numpy",), True),
    "index": ({"numpy": "https://robot:secret@index.test/simple"}, True),
    "torch": ("cu128", True),
    "archs": (("sm_90",), False),
    "system_packages": (("libgomp1",), False),
    "package_manager": ("dnf", False),
    "env": ({"A": "b"}, False),
    "labels": ({"a": "b"}, False),
    "template": ("other.j2", False),
    "copy": ((("src", "/app"),), False),
    "command": (("other",), False),
    "user": (User("other"), False),
    "image": ("other", False),
    "tags": (("other",), False),
    "lock": ("locks/other.toml", False),
    "smoke": ((Smoke("help", "none", ("true",), 9.0, PLACE),), False),
    # Nothing is resolved for a target whose project has the lock: test_taken_locks.py.
    "committed_lock": ("", False),
    "groups": (("dev",), False),
    "only_groups": (("dev",), False),
    "environment": ("cuda", False),
    "install_project": (True, False),
    "runner": ("gpu", False),
    "node_classes": ((NodeClass("a", "cpu", "", (), {}, (), PLACE),), False),
    "check_waivers": (
        (CheckWaiver("import", "x", "junk", "ml", date(2026, 12, 31), PLACE),),
        False,
    ),
}


def test_the_table_has_every_field_of_a_target() -> None:
    assert list(FIELDS) == list(field_names(Target))


@pytest.mark.parametrize("name", FIELDS)
def test_a_target_with_another_value_asks_anew_where_the_answer_depends_on_it(
    name: str, tmp_path: Path, uv: FakeUv
) -> None:
    write(tmp_path)
    write(tmp_path, "idna\n", "more.in")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "demo"\nversion = "1"\n[project.optional-dependencies]\nboost = []\n'
    )
    value, depends = FIELDS[name]
    project = {"pyproject": "pyproject.toml"} if name == "extras" else {}
    first = named("first", **project)
    second = replace(named("second", **project), **{name: value})
    results = locked(tmp_path, [first, second])
    assert all(isinstance(result, Lock) for result in results.values()), results
    together, uv.calls = uv.calls, []
    assert (len(together) > EACH) == depends
    # What uv would be asked for each of them alone says the same.
    (tmp_path / second.lock).unlink()
    (tmp_path / first.lock).unlink()
    locked(tmp_path, [first])
    alone, uv.calls = uv.calls, []
    locked(tmp_path, [second])
    assert (uv.calls != alone) == depends


def test_what_the_record_of_a_lock_leaves_out_counts_too(tmp_path: Path, uv: FakeUv) -> None:
    write(tmp_path)
    urls = ("https://a:1@index.test/simple", "https://b:2@index.test/simple")
    locked(
        tmp_path, [named(name, index={"numpy": url}) for name, url in zip("ab", urls, strict=True)]
    )
    asked = {part for arguments, _ in uv.calls for part in arguments if "--index=" in part}
    assert asked == {f"--index={url}" for url in urls}


def test_versions_that_locks_keep_are_part_of_the_question(tmp_path: Path, uv: FakeUv) -> None:
    write(tmp_path)
    targets = variants("a", "b", "c")
    locked(tmp_path, targets)
    lock = tmp_path / targets[1].lock
    lock.write_text(lock.read_text().replace('\nversion = "1.0"', '\nversion = "0.9"'))
    write(tmp_path, "numpy\nidna\n")
    uv.calls.clear()
    locked(tmp_path, targets)
    kept = [files["resolved.txt"] for arguments, files in uv.calls if "pins.txt" not in files]
    assert sorted(kept) == ["numpy==0.9\n", "numpy==1.0\n"]
    uv.calls.clear()
    locked(tmp_path, targets, upgrade=True)
    assert len(uv.calls) == EACH
    assert all("--refresh" in arguments for arguments, _ in uv.calls)
    uv.calls.clear()
    locked(tmp_path, targets, upgrade=["numpy"], offline=True)
    assert len(uv.calls) == EACH
    for arguments, files in uv.calls:
        assert {"--offline", "--refresh-package=numpy"} <= set(arguments)
        assert "numpy" not in files["resolved.txt"] or "pins.txt" in files


def test_a_current_lock_is_read_and_only_the_others_are_resolved(
    tmp_path: Path, uv: FakeUv
) -> None:
    write(tmp_path)
    targets = variants("a", "b", "c")
    locked(tmp_path, targets[:1])
    uv.calls.clear()
    assert all(isinstance(lock, Lock) for lock in locked(tmp_path, targets).values())
    assert len(uv.calls) == EACH


def test_a_uv_that_fails_or_is_killed_fails_each_target_by_its_name(
    tmp_path: Path, uv: FakeUv
) -> None:
    write(tmp_path)
    uv.failure = ("error: No solution found when resolving dependencies:\n  because it is odd\n", 1)
    results = locked(tmp_path, [*variants("a", "b"), *variants("c", python="3.12")])
    assert len(uv.calls) == 2
    for id, error in results.items():
        assert isinstance(error, NoSolution)
        assert error.message.startswith(f"{id}: its requirements cannot be resolved.")
        assert (str(error), error.python, error.exit_code) == (error.message, None, 3)
    uv.failure = ("", -9)
    results = locked(tmp_path, variants("a", "b"))
    assert [str(error) for error in results.values()] == [
        "a: uv failed and gave no reason.",
        "b: uv failed and gave no reason.",
    ]
    uv.failure = None
    assert all(isinstance(lock, Lock) for lock in locked(tmp_path, variants("a", "b")).values())


def test_errors_of_other_kinds_keep_their_kind_and_their_text(
    tmp_path: Path, uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    loop = {"a": "b", "b": "c"}
    for id, error in locked(tmp_path, variants("x", "y", replace=loop)).items():
        assert isinstance(error, UsageError)
        assert str(error).startswith(f"{id}: `replace` turns a into b")

    def missing() -> None:
        raise ComponentError("uv was not found")

    monkeypatch.setattr(resolve, "find_uv", missing)
    assert {str(error) for error in locked(tmp_path, variants("x", "y")).values()} == {
        "uv was not found"
    }
    (tmp_path / "requirements.in").write_text("numpy ===== 1\n")
    for error in locked(tmp_path, variants("x", "y")).values():
        assert isinstance(error, SpecError)


def test_a_lock_that_cannot_be_written_is_an_error_of_its_target_alone(
    tmp_path: Path, uv: FakeUv
) -> None:
    write(tmp_path)
    targets = variants("a", "b", "c")
    (tmp_path / targets[1].lock).mkdir(parents=True)
    results = locked(tmp_path, targets)
    assert [type(result) for result in results.values()] == [Lock, UndecidedError, Lock]


def test_ctrl_c_keeps_what_was_resolved_and_begins_nothing_more(
    tmp_path: Path, uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    targets = [*variants("a", "b"), *variants("c", "d", python="3.12")]
    run = uv.run

    def interrupted(*arguments: Any) -> Any:
        if not uv.calls:
            signal.raise_signal(signal.SIGINT)
        return run(*arguments)

    monkeypatch.setattr(uv, "run", interrupted)
    assert threading.current_thread() is threading.main_thread()
    with pytest.raises(KeyboardInterrupt):
        lock_targets(
            spec_of(tmp_path, *targets),
            targets,
            upgrade=False,
            offline=False,
            progress=Silent(),
            jobs=1,
        )
    assert len(uv.calls) in (EACH, 2 * EACH)
    assert (tmp_path / targets[0].lock).is_file()
    assert (tmp_path / targets[1].lock).is_file()
    uv.calls.clear()
    locked(tmp_path, targets[:2])
    assert not uv.calls


def test_a_mixed_matrix_has_byte_for_byte_the_locks_of_targets_that_are_locked_alone(
    tmp_path: Path, index: PackageIndex
) -> None:
    cu128, cpu = {"torch": index.url("cu128")}, {"torch": index.url("cpu")}
    targets = [
        *variants("a", "b"),
        *variants("c", "d", index=cu128),
        *variants("e", index=cpu, replace={"xgboost": "xgboost-cpu"}, drop=("numpy",)),
        *variants("f", python="3.12", requirements=("requirements.in", "more.in")),
        *variants("g", "h", requirements=("broken.in",)),
    ]
    together, alone = tmp_path / "together", tmp_path / "alone"
    for root in (together, alone):
        root.mkdir()
        write(root, "sentence-transformers\nxgboost\n-c limits.in\n")
        write(root, "numpy<2.1\n", "limits.in")
        write(root, "booster ; python_version >= '3.12'\n", "more.in")
        write(root, "torch==99\n", "broken.in")

    def compare(items: Sequence[Target]) -> None:
        results = locked(together, items)
        for item in items:
            expected = locked(alone, [item])[item.id]
            if item.requirements == ("broken.in",):
                assert isinstance(expected, UndecidedError)
                assert (type(results[item.id]), str(results[item.id])) == (
                    type(expected),
                    str(expected),
                )
            else:
                assert isinstance(expected, Lock), expected
                assert (together / item.lock).read_bytes() == (alone / item.lock).read_bytes()

    compare(targets)
    for root in (together, alone):  # Now there are versions to keep.
        write(root, "numpy<2.2\n", "limits.in")
    compare(targets[1:3])


def test_the_command_says_an_error_once_with_all_targets_that_it_is_for(
    tmp_path: Path,
    uv: FakeUv,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path)
    (tmp_path / "buildmatrix.toml").write_text(
        'schema = 1\n[project]\nname = "demo"\nversion = "1"\nimage = "demo"\n'
        '[defaults]\npython = ["3.11", "3.12"]\nvariant = ["a", "b"]\n'
        'requirements = ["requirements.in"]\n'
        '[backend.cpu]\nruntime = "any"\nbase = "python:{python}-slim-bookworm"\n'
    )
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> object:
        with pytest.raises(SystemExit) as stop:
            main(["lock", "--no-progress", *arguments])
        return stop.value.code

    uv.failure = ("error: it is raining\n", 2)
    assert run() == 3
    out, errors = capsys.readouterr()
    assert out == ""
    ids = "cpu-py311-a, cpu-py311-b, cpu-py312-a, cpu-py312-b"
    assert [line for line in errors.splitlines() if "rain" in line] == [
        f"{ids}: uv failed: it is raining"
    ]
    uv.failure = None
    assert run() == 0
    assert capsys.readouterr().out.count(": locked locks/pylock.") == 4
    assert run("--check") == 0


def test_no_call_looks_for_a_python_by_itself(tmp_path: Path, uv: FakeUv) -> None:
    write(tmp_path)
    uv.python = "/usr/bin/python3.13"
    locked(tmp_path, variants("a", "b"))
    assert len(uv.calls) == EACH
    assert all("--python=/usr/bin/python3.13" in arguments for arguments, _ in uv.calls)
