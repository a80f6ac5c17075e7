"""Which package of the operating system brought a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.facts.inventory.listing import Listing
from buildmatrix.facts.inventory.model import SystemPackage, Unread
from buildmatrix.facts.inventory.system import find_packages, read_system_packages
from buildmatrix.facts.trees.archive import DirectoryTree

LIBZ = "usr/lib/x86_64-linux-gnu/libz.so.1.3"
STATUS = """\
Package: zlib1g
Status: install ok installed
Version: 1:1.3-1

Package: old
Status: deinstall ok config-files
Version: 1
"""


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def owners(root: Path, *wanted: str) -> dict[str, str]:
    with DirectoryTree(root) as tree:
        listing = Listing(tree)
        found = find_packages(listing, read_system_packages(listing), wanted)
        assert listing.unread == []
    return found


def test_a_list_of_dpkg_names_files_through_the_links_of_a_merged_usr(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "var/lib/dpkg/status": STATUS,
            "var/lib/dpkg/info/zlib1g:amd64.list": "/.\n/lib\n/lib/x86_64-linux-gnu/libz.so.1.3\n",
            LIBZ: "x",
            "opt/libz.so.1.3": "x",
        },
    )
    (tmp_path / "lib").symlink_to("usr/lib")
    assert owners(tmp_path, LIBZ, "opt/libz.so.1.3") == {LIBZ: "zlib1g 1:1.3-1"}


def test_the_list_of_a_removed_package_says_nothing(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "var/lib/dpkg/status": STATUS,
            "var/lib/dpkg/info/old.list": f"/{LIBZ}\n",
            LIBZ: "x",
        },
    )
    assert owners(tmp_path, LIBZ) == {}


def test_a_metadata_folder_of_a_python_distribution_is_found(tmp_path: Path) -> None:
    folder = "usr/lib/python3/dist-packages/zlib-1.egg-info"
    write(
        tmp_path,
        {
            "var/lib/dpkg/status": STATUS,
            "var/lib/dpkg/info/zlib1g.list": f"/{folder}\n/{folder}/PKG-INFO\n",
            f"{folder}/PKG-INFO": "Name: zlib",
        },
    )
    assert owners(tmp_path, folder) == {folder: "zlib1g 1:1.3-1"}


def test_an_image_without_dpkg_keeps_checksums_that_name_the_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "var/lib/dpkg/status.d/zlib1g": "Package: zlib1g\nVersion: 1:1.3-1\n",
            "var/lib/dpkg/status.d/zlib1g.md5sums": f"{'0' * 32}  {LIBZ}\n",
            LIBZ: "x",
        },
    )
    assert owners(tmp_path, LIBZ) == {LIBZ: "zlib1g 1:1.3-1"}


def test_the_database_of_apk_names_folders_and_files(tmp_path: Path) -> None:
    database = "P:zlib\nV:1.3-r0\nF:usr/lib\nR:libz.so.1.3\n\nP:musl\nV:1.2\nF:lib\nR:ld.so\n"
    files = {"lib/apk/db/installed": database, "usr/lib/libz.so.1.3": "x", "lib/ld.so": "x"}
    write(tmp_path, files)
    found = owners(tmp_path, "usr/lib/libz.so.1.3", "lib/ld.so", "usr/libz.so.1.3")
    assert found == {"lib/ld.so": "musl 1.2", "usr/lib/libz.so.1.3": "zlib 1.3-r0"}


def test_a_tree_without_packages_reads_no_list(tmp_path: Path) -> None:
    write(tmp_path, {"var/lib/dpkg/info/zlib1g.list": f"/{LIBZ}\n", LIBZ: "x"})
    with DirectoryTree(tmp_path) as tree:
        listing = Listing(tree)
        assert find_packages(listing, [SystemPackage("zlib1g", "1")], []) == {}
        assert find_packages(listing, [], [LIBZ]) == {}
        assert listing.bytes_read == 0


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("var/lib/dpkg/status", "Package: p{}\nVersion: 1\n\n"),
        ("lib/apk/db/installed", "P:p{}\nV:1\n\n"),
    ],
)
def test_packages_have_a_limit_that_is_told(tmp_path: Path, path: str, text: str) -> None:
    write(tmp_path, {path: "".join(text.format(number) for number in range(20_001))})
    with DirectoryTree(tmp_path) as tree:
        listing = Listing(tree)
        assert len(read_system_packages(listing)) == 20_000
        assert listing.unread == [Unread(path, "more than 20000 packages; the rest was left out")]
