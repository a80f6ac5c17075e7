"""Files of references, and what several lists say together."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from buildmatrix.base.errors import SpecError, UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.fleet import reference_lists
from buildmatrix.fleet.model import Subject
from buildmatrix.fleet.reference_lists import SubjectList, SubjectSettings
from buildmatrix.fleet.subjects import Lister
from buildmatrix.matrix.model import NodeClass, Position

H100 = NodeClass("h100", "cuda", "", (), {}, (), Position("buildmatrix.toml", 1))
DIGEST = "sha256:" + "a" * 64


def no_registry() -> None:
    raise AssertionError("no registry is asked")


def found(*sources: str, **settings: object) -> SubjectList:
    settings.setdefault("node_classes", (H100,))
    return Lister(SubjectSettings(**settings), load(), no_registry).find(sources)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("images.txt")


def test_a_file_of_references(images: Path):
    images.write_text(
        "# what serves\n"
        "\n"
        "registry.test/team/app:1.0 node-class=h100 owner=ml   # the large one\n"
        f"  registry.test/team/app@{DIGEST}\r\n"
        "nginx\n"
        "registry.test/team/app:1.0 owner=search\n",
        encoding="utf-8-sig",
    )
    held = found("file:images.txt")
    assert held.subjects == (
        Subject(reference="docker.io/library/nginx:latest", places=("images.txt:5",)),
        Subject(
            reference="registry.test/team/app:1.0",
            places=("images.txt:3", "images.txt:6"),
            node_classes=("h100",),
            owner="ml, search",
        ),
        Subject(reference=f"registry.test/team/app@{DIGEST}", places=("images.txt:4",)),
    )
    assert held.missing == held.notes == ()
    assert held == found("images.txt")


def test_standard_input(images: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a.test/b:1\n")))
    assert [item.places for item in found("-").subjects] == [("standard input:1",)]
    with pytest.raises(UsageError, match="standard input can be one list only"):
        found("-", "pods:-")


def test_mistakes_have_their_lines(images: Path):
    images.write_text(
        "a.test/Team/app\n"
        "a.test/b:1 node-class=h200\n"
        "a.test/b:1 team=ml\n"
        "a.test/b:1 owner=a owner=b\n"
        "http://a.test/b\n"
    )
    with pytest.raises(SpecError) as error:
        found("images.txt")
    assert [(item.file, item.line) for item in error.value.problems] == [
        ("images.txt", line) for line in (1, 2, 3, 4, 5)
    ]
    messages = [item.message for item in error.value.problems]
    assert "write HOST/NAME" in messages[0]
    assert messages[1] == "there is no node class `h200` in the specification, which has h100"
    assert "'team=ml' is not `node-class=NAME`" in messages[2]
    assert "`owner` is there twice" in messages[3]
    with pytest.raises(SpecError, match="describe it in a specification"):
        found("images.txt", node_classes=())


def test_files_that_are_none(images: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        found("file:images.txt")
    with pytest.raises(UsageError, match=r"there is no file images\.txt; a fleet is registry:"):
        found("images.txt")
    with pytest.raises(UsageError, match="name what is in the fleet"):
        found()
    images.write_bytes(b"\xff\xfea\0")
    with pytest.raises(UsageError, match="is not UTF-8"):
        found("images.txt")
    monkeypatch.setattr(reference_lists, "LARGEST", 3)
    with pytest.raises(UsageError, match="has more than 3 bytes"):
        found("images.txt")


def test_what_is_excluded_is_counted(images: Path):
    images.write_text("a.test/team/app:1\na.test/team/app:1-dev\na.test/old/app:1\nb.test/x:1\n")
    held = found("images.txt", exclude=("old/*", "*:*-dev", "b.test/*"))
    assert [item.reference for item in held.subjects] == ["a.test/team/app:1"]
    assert held.notes == ("3 references left out by --exclude",)


def test_places_are_counted_where_there_are_many(images: Path):
    images.write_text("a.test/b:1\n" * 1000)
    (subject,) = found("images.txt").subjects
    assert subject.places[0] == "images.txt:1"
    assert subject.places[10:] == ("990 more places",)


def test_a_run_has_a_largest_number_of_images(images: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("buildmatrix.fleet.subjects.MOST_SUBJECTS", 2)
    images.write_text("a.test/c:1\na.test/a:1\na.test/b:1\n")
    held = found("images.txt")
    assert [item.reference for item in held.subjects] == ["a.test/a:1", "a.test/b:1"]
    assert held.missing == ("1 images were left out: a run takes 2",)
