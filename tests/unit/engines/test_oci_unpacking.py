"""An image on disk: what its layers say, and never outside of its folder."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines.oci.unpacking import Identity, identity, unpack
from buildmatrix.facts.trees.archive import OpenFile, Slice
from buildmatrix.facts.trees.archive_layers import LayeredTree

APP = Identity(10001, 10001, (44,))


class Layer:
    """A layer that is written entry by entry."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._buffer, mode="w", format=tarfile.PAX_FORMAT)

    def file(self, name: str, data: bytes = b"", **attributes: int) -> Layer:
        return self._add(name, tarfile.REGTYPE, data, **attributes)

    def folder(self, name: str, **attributes: int) -> Layer:
        return self._add(name, tarfile.DIRTYPE, **{"mode": 0o755, **attributes})

    def link(self, name: str, target: str) -> Layer:
        return self._add(name, tarfile.SYMTYPE, target=target)

    def hardlink(self, name: str, target: str) -> Layer:
        return self._add(name, tarfile.LNKTYPE, target=target)

    def _add(
        self,
        name: str,
        kind: bytes,
        data: bytes = b"",
        *,
        target: str = "",
        mode: int = 0o644,
        uid: int = 0,
        gid: int = 0,
    ) -> Layer:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, target, len(data)
        info.mode, info.uid, info.gid = mode, uid, gid
        self._tar.addfile(info, io.BytesIO(data))
        return self

    def bytes(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., LayeredTree]:
    files = []

    def make(*layers: Layer) -> LayeredTree:
        slices = []
        for number, layer in enumerate(layers):
            path = tmp_path / f"layer{number}"
            path.write_bytes(layer.bytes())
            files.append(path.open("rb"))
            source = OpenFile(files[-1].fileno())
            slices.append(Slice(source, 0, source.size))
        return LayeredTree(slices)

    return make


def test_files_folders_and_links_are_those_of_the_merged_layers(
    tmp_path: Path, tree: Callable[..., LayeredTree]
) -> None:
    lower = Layer().folder("a").file("a/gone", b"1").file("a/kept", b"2").link("way", "/a")
    upper = Layer().file("a/.wh.gone").file("way/new", b"3").hardlink("b", "a/kept")
    root = tmp_path / "root"
    root.mkdir()

    unpack(tree(lower, upper), root, APP, with_owners=False)

    assert (root / "a/kept").read_bytes() == b"2"
    assert (root / "a/new").read_bytes() == b"3"
    assert not (root / "a/gone").exists()
    assert (root / "way").readlink() == Path("/a")
    assert (root / "b").samefile(root / "a/kept")
    assert sorted(path.name for path in root.iterdir()) == ["a", "b", "dev", "proc", "tmp", "way"]


@pytest.mark.parametrize(
    "layers",
    [
        [Layer().link("out", "{outside}").file("out/evil", b"x")],
        [Layer().link("out", "{outside}"), Layer().file("out/evil", b"x")],
        [Layer().link("out", "../../..").file("out/{outside}/evil", b"x")],
        [Layer().file("../evil", b"x").file("/../../evil", b"x")],
        [Layer().link("a", "b").link("b", "a").file("a/evil", b"x")],
        [Layer().hardlink("evil", "/etc/passwd").hardlink("evil2", "../../../etc/passwd")],
        [Layer().link("evil", "{outside}/evil").file("evil", b"x")],
        [Layer().folder("{outside}").folder("out").link("out", "{outside}").file("out/evil")],
    ],
)
def test_nothing_is_written_outside(
    layers: list[Layer], tmp_path: Path, tree: Callable[..., LayeredTree]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "deep/er/root"
    root.mkdir(parents=True)

    unpack(tree(*layers), root, APP, with_owners=False)

    assert list(outside.iterdir()) == []
    for path in tmp_path.rglob("*evil*"):
        assert root in path.parents, path
        assert not path.is_file() or path.read_bytes() != Path("/etc/passwd").read_bytes()


def test_without_root_a_file_has_the_rights_that_the_account_has(
    tmp_path: Path, tree: Callable[..., LayeredTree]
) -> None:
    layer = (
        Layer()
        .folder("secret", mode=0o700)
        .file("secret/key", b"1", mode=0o600)
        .file("mine", mode=0o640, uid=10001)
        .file("group", mode=0o750, gid=44)
        .file("others", mode=0o4751)
    )
    root = tmp_path / "root"
    root.mkdir()

    unpack(tree(layer), root, APP, with_owners=False)

    def rights(name: str) -> int:
        return stat.S_IMODE((root / name).lstat().st_mode)

    assert rights("secret") == 0o200, "to be removed again, and neither listed nor entered"
    assert [rights(name) for name in ("mine", "group", "others")] == [0o666, 0o555, 0o111]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_as_root_owners_and_modes_are_the_images(
    tmp_path: Path, tree: Callable[..., LayeredTree]
) -> None:
    layer = Layer().folder("home", mode=0o2750, uid=10001, gid=10002)
    layer.file("home/run", mode=0o6755, uid=1, gid=2).link("home/link", "run")
    root = tmp_path / "root"
    root.mkdir()

    unpack(tree(layer), root, APP, with_owners=True)

    def owner(name: str) -> tuple[int, int, int]:
        status = (root / name).lstat()
        return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid

    assert owner("home") == (0o2750, 10001, 10002)
    assert owner("home/run") == (0o6755, 1, 2)
    assert owner("home/link")[1:] == (0, 0)


def test_a_name_that_no_disk_takes_is_undecided(
    tmp_path: Path, tree: Callable[..., LayeredTree]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(UndecidedError, match="cannot be laid out"):
        unpack(tree(Layer().file("n" * 300, b"1")), root, APP, with_owners=False)


#: The last account and the last group have numbers as names.
PASSWD = b"root:x:0:0::/root:/bin/sh\napp:x:10001:10002::/home/app:\n# note\nbroken\n5:x:0:0::/:\n"
GROUP = b"root:x:0:\nvideo:x:44:app,other\napp:x:10002:\nrender:x:105:app\n5:x:0:\n"


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("", Identity(0, 0)),
        ("10001", Identity(10001, 10002, (44, 105))),
        ("app", Identity(10001, 10002, (44, 105))),
        ("app:video", Identity(10001, 44)),
        ("10001:7", Identity(10001, 7)),
        ("4711", Identity(4711, 0)),
        ("0:5", Identity(0, 5)),
        ("app:5", Identity(10001, 5)),
        ("5", Identity(5, 0)),
    ],
)
def test_the_account_is_read_as_runc_reads_it(
    user: str, expected: Identity, tree: Callable[..., LayeredTree]
) -> None:
    files = tree(Layer().file("etc/passwd", PASSWD).file("etc/group", GROUP))
    assert identity(user, files) == expected


@pytest.mark.parametrize("user", ["nobody", "app:nothing"])
def test_an_account_that_the_image_lacks_is_undecided(
    user: str, tree: Callable[..., LayeredTree]
) -> None:
    files = tree(Layer().file("etc/passwd", PASSWD).file("etc/group", GROUP))
    with pytest.raises(UndecidedError):
        identity(user, files)


def test_an_account_of_an_image_without_files_is_its_number(
    tree: Callable[..., LayeredTree],
) -> None:
    assert identity("10001", tree(Layer())) == Identity(10001, 0)
