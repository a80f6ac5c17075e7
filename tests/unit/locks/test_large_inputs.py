"""Inputs that are far larger than real ones: their cost grows with their size, up to a bound.

What would grow faster takes hours here, and no clock has to tell.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from lock_cases import target

from buildmatrix.base.errors import SpecError
from buildmatrix.catalogue.load import load
from buildmatrix.judge.subject import Subject, locked
from buildmatrix.locks import requirement_files, requirement_lines, uvlock
from buildmatrix.locks.committed import read_committed
from buildmatrix.locks.lines import MOST_LINES, MOST_PACKAGES
from buildmatrix.locks.model import Lock, Package
from buildmatrix.locks.requirement_files import read_requirements
from buildmatrix.locks.selection import LockSelection
from buildmatrix.matrix.model import Policy


def test_files_that_include_each_other_twice_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        others = f"-r {number + 1}.txt\n-r {number + 1}.txt\n-r 0.txt\n" if number < 59 else ""
        (tmp_path / f"{number}.txt").write_text(f"{others}p{number}\n-c limits.txt\n")
    (tmp_path / "limits.txt").write_text("numpy<3\n")
    read: list[str] = []

    def counted(path: Path, *rest: object) -> bytes:
        read.append(path.name)
        return path.read_bytes()

    monkeypatch.setattr(requirement_files, "read_bytes", counted)
    monkeypatch.setattr(requirement_files, "_DEEPEST", 100)
    found = read_requirements(tmp_path / "0.txt", "0.txt")
    assert len(found.lines) == 60
    assert len(found.constraints) == 1
    assert sorted(read) == sorted(set(read))


def test_a_file_that_is_both_included_and_a_constraint_is_both(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("-c b.txt\n-r b.txt\n-c b.txt\n")
    (tmp_path / "b.txt").write_text("numpy==2.0\n")
    found = read_requirements(tmp_path / "a.txt", "a.txt")
    assert (len(found.lines), len(found.constraints)) == (1, 1)


@pytest.mark.parametrize("deep", [True, False])
def test_more_files_than_any_real_source_has_are_refused(tmp_path: Path, deep: bool) -> None:
    many = 1001
    for number in range(many):
        text = f"-r {number + 1}.txt\n" if deep and number + 1 < many else ""
        (tmp_path / f"{number}.txt").write_text(text)
    if not deep:
        lines = "".join(f"-r {number}.txt\n" for number in range(1, many))
        (tmp_path / "0.txt").write_text(lines)
    with pytest.raises(SpecError, match=r"more than (30|1000) files (are )?incl"):
        read_requirements(tmp_path / "0.txt", "0.txt")


def test_more_lines_than_any_real_source_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirement_lines, "MOST_LINES", 50)
    (tmp_path / "a.txt").write_text("-r b.txt\n" + "a\n" * 30)
    (tmp_path / "b.txt").write_text("b\n" * 20)
    assert len(read_requirements(tmp_path / "a.txt", "a.txt").lines) == 50
    (tmp_path / "b.txt").write_text("b\n" * 21)
    with pytest.raises(SpecError, match=rf"^a.txt: .* more than {MOST_LINES} requirements; split"):
        read_requirements(tmp_path / "a.txt", "a.txt")


@pytest.mark.parametrize(
    ("name", "head", "entry"),
    [
        ("uv.lock", 'version = 1\nrequires-python = ">=3.11"\n', '[[package]]\nname = "p"\n'),
        ("poetry.lock", '[metadata]\nlock-version = "2.1"\n', '[[package]]\nname = "p"\n'),
        ("pylock.toml", 'lock-version = "1.0"\n', '[[packages]]\nname = "p"\n'),
    ],
)
def test_more_packages_than_any_real_lock_has_are_refused(
    tmp_path: Path, name: str, head: str, entry: str
) -> None:
    (tmp_path / name).write_text(head + entry * (MOST_PACKAGES + 1))
    with pytest.raises(SpecError, match=f"^{name}: it holds more than {MOST_PACKAGES} packages"):
        read_committed(LockSelection(tmp_path / name, name, target()))


def test_a_pipfile_lock_has_the_same_bound(tmp_path: Path) -> None:
    default = {f"p{number}": {"version": "==1"} for number in range(MOST_PACKAGES + 1)}
    path = tmp_path / "Pipfile.lock"
    path.write_text(json.dumps({"_meta": {"hash": {}}, "default": default}))
    with pytest.raises(SpecError, match="it holds more than"):
        read_committed(LockSelection(path, "Pipfile.lock", target()))


def subject(**via: tuple[str, ...]) -> Subject:
    packages = tuple(
        Package(name, "1", None, (), False, askers, place=f"x.lock:{number}")
        for number, (name, askers) in enumerate(via.items(), 1)
    )
    return locked(target(), Lock(Path("x.lock"), packages, "", ""), load(), Policy())


def test_ways_through_a_chain_of_a_whole_lock_are_found_in_one_walk() -> None:
    names = [f"p{number}" for number in range(MOST_PACKAGES)]
    chain = subject(p0=("a.in:1",), **{b: (a,) for a, b in pairwise(names)})
    found = chain.chain_to(names[-1])
    assert (found[0], found[1], found[-1]) == ("a.in:1", "p0 1", f"{names[-1]} 1")
    assert found[31] == f"{MOST_PACKAGES - 60} more"
    assert len(found) == 62
    # Each way is short to find where the one walk over all of them is done.
    assert all(chain.chain_to(name)[0] == "a.in:1" for name in names[:300])


def test_the_shortest_way_is_taken_and_the_first_of_equal_ones() -> None:
    found = subject(
        a=("r.in:1",), b=("a", "r.in:2"), c=("b",), d=("a", "c"), e=("c", "d"), f=("x", "e")
    )
    assert found.chain_to("d") == ("r.in:1", "a 1", "d 1")
    assert found.chain_to("e") == ("r.in:2", "b 1", "c 1", "e 1")
    assert found.chain_to("b") == ("r.in:2", "b 1")
    assert found.chain_to("f") == ("x", "f 1")
    assert found.chain_to("gone") == ()


def test_a_circle_that_nobody_asks_for_is_blamed_on_its_entry() -> None:
    assert subject(a=("b",), b=("a",)).chain_to("a") == ("x.lock:1", "a 1")


def test_extras_of_a_uv_lock_that_activate_one_another_last_first_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "uv.lock"
    edges = "".join(
        f'{{ name = "a", extra = ["e{n}"], marker = "extra == \'extra-1-a-e{n + 1}\'" }},'
        for n in range(60)
    )
    path.write_text(
        'version = 1\nrequires-python = ">=3.11"\n'
        'conflicts = [[{ package = "a", extra = "x" }, { package = "a", extra = "y" }]]\n'
        '[[package]]\nname = "root"\nversion = "1"\nsource = { virtual = "." }\n'
        f'dependencies = [{edges} {{ name = "a", extra = ["e60"] }}]\n'
        '[[package]]\nname = "a"\nversion = "1"\nsource = { registry = "https://e/simple" }\n'
        '[package.optional-dependencies]\ne0 = [{ name = "b" }]\n'
        '[[package]]\nname = "b"\nversion = "1"\nsource = { registry = "https://e/simple" }\n'
    )
    selection = LockSelection(path, "uv.lock", target())
    packages = read_committed(selection)[0].lock.packages
    assert [package.name for package in packages] == ["a", "b"]
    monkeypatch.setattr(uvlock, "_MOST_STEPS", 2000)
    with pytest.raises(SpecError, match="more than 2000 dependencies lead out of it"):
        read_committed(selection)
