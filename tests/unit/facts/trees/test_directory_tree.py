from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from buildmatrix.facts.trees.archive import MAX_DEPTH, DirectoryTree
from buildmatrix.facts.trees.base import File, Symlink, Trouble, Unreadable


def walk(root: Path) -> list[File | Symlink | Trouble]:
    with DirectoryTree(root) as tree:
        return list(tree.walk())


def test_files_and_links_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/two", "a", "b/one", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1234")
    (tmp_path / "b/link").symlink_to("/etc/passwd")
    assert walk(tmp_path) == [
        File("a", 4),
        Symlink("b/link", "/etc/passwd"),
        File("b/one", 4),
        File("b/two", 4),
        File("c", 4),
    ]


def test_a_link_to_a_folder_is_told_of_and_not_entered(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(outside)
    (root / "loop").symlink_to(".")
    assert walk(root) == [Symlink("loop", "."), Symlink("out", str(outside))]


def test_opening_through_a_link_that_took_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "link").symlink_to(outside / "file")
    with DirectoryTree(root) as tree:
        for path in ("folder/file", "link", "../outside/file"):
            with pytest.raises(OSError), tree.open(path):
                pass


def test_fifos_sockets_and_devices_are_no_part_of_a_tree(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", 0o600 | 0o020000, os.makedev(1, 3))
    (tmp_path / "file").write_text("x")
    assert walk(tmp_path) == [File("file", 1)]


def test_a_fifo_that_took_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (
        DirectoryTree(tmp_path) as tree,
        pytest.raises(Unreadable, match="no longer a regular file"),
        tree.open("fifo"),
    ):
        pass


def test_names_of_one_file_share_an_identity(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    os.link(tmp_path / "a", tmp_path / "b")
    first, second = walk(tmp_path)
    assert isinstance(first, File) and isinstance(second, File)
    assert first.identity is not None
    assert first.identity == second.identity


def test_a_name_that_is_not_utf_8_can_be_opened_again(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"lib\xff.so")).write_bytes(b"bytes")
    with DirectoryTree(tmp_path) as tree:
        (entry,) = tree.walk()
        assert tree.read_bytes(entry.path, 10) == b"bytes"


def test_folders_nested_too_deep_are_reported(tmp_path: Path) -> None:
    (tmp_path / Path(*["d"] * (MAX_DEPTH + 5))).mkdir(parents=True)
    (trouble,) = walk(tmp_path)
    assert isinstance(trouble, Trouble)
    assert trouble.path == "/".join(["d"] * (MAX_DEPTH + 1))
    assert "deep" in trouble.why


def test_a_folder_without_permission_is_reported() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "closed").mkdir()
        (root / "closed").chmod(0)
        child = os.fork()
        if child == 0:  # root may list every folder: ask as somebody else
            if os.geteuid() == 0:
                os.setuid(65534)
            os._exit(0 if walk(root) == [Trouble("closed", "permission denied")] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_plain_folder_called_proc_is_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/file").write_text("x")
    assert walk(tmp_path) == [File("proc/file", 1)]


def test_a_mounted_proc_is_no_part_of_the_tree_above_it() -> None:
    with DirectoryTree(Path("/")) as tree:
        first_after = next(
            entry.path for entry in tree.walk() if entry.path.partition("/")[0] >= "proc"
        )
    assert not first_after.startswith("proc/")


def test_a_file_with_more_bytes_than_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 11)
    with DirectoryTree(tmp_path) as tree:
        assert tree.read_bytes("file", 11) == b"x" * 11
        with pytest.raises(Unreadable, match="larger than the limit of 10 bytes"):
            tree.read_bytes("file", 10)


def test_reads_past_the_end_and_of_absurd_lengths_are_short(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    with DirectoryTree(tmp_path) as tree, tree.open("file") as source:
        assert source.read(3, 1 << 50) == b"45"
        assert source.read(1 << 40, 8) == b""
        assert source.bytes_read == 2


def test_a_root_that_is_no_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        DirectoryTree(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        DirectoryTree(tmp_path / "missing")


def test_closing_frees_every_descriptor(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with DirectoryTree(tmp_path) as tree:
        list(tree.walk())
        tree.read_bytes("folder/file", 10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_files_are_opened_in_any_order_also_after_one_that_is_not_there(tmp_path: Path) -> None:
    paths = ["a", "x/a", "x/y/a", "x/y/z/a", "x/q/a", "b/y/a"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    with DirectoryTree(tmp_path) as tree:
        for first in paths:
            for then in paths:
                assert tree.read_bytes(first, 99) == first.encode()
                for lost in ("x/none/a", "x/y/none", "none", "x/../a"):
                    with pytest.raises(OSError):
                        tree.read_bytes(lost, 99)
                    assert tree.read_bytes(then, 99) == then.encode()
