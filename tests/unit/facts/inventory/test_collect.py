"""What an inventory says of trees that are laid out like real ones."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from buildmatrix.facts.inventory import distributions
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory, Link, SharedPath, SystemPackage, Unread
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.wheel import WheelTree

SITE = "usr/lib/python3/site-packages"
#: The header of an x86-64 shared object without segments and sections.
ELF = struct.pack(
    "<4s4B8x2HI3QI6H", b"\x7fELF", 2, 1, 1, 0, 3, 62, 1, 0, 0, 0, 0, 64, 56, 0, 64, 0, 0
)


def record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


class Image:
    """A root file system in the making."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, path: str, data: bytes | str = b"") -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data.encode() if isinstance(data, str) else data)

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def distribution(
        self,
        name: str,
        version: str,
        files: dict[str, bytes],
        *,
        site: str = SITE,
        requires: tuple[str, ...] = (),
        written: dict[str, bytes] | None = None,
    ) -> str:
        """Install `files`; `written` is what lies on disk in the end, where that differs."""
        folder = f"{site}/{name}-{version}.dist-info"
        self.file(
            f"{folder}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            + "".join(f"Requires-Dist: {line}\n" for line in requires)
            + "\nThe description.\nName: wrong\n",
        )
        rows = [f"{path},{record_hash(data)},{len(data)}\n" for path, data in files.items()]
        rows.append(f"{name}-{version}.dist-info/METADATA,,\n")
        self.file(f"{folder}/RECORD", "".join(rows))
        for path, data in {**files, **(written or {})}.items():
            self.file(os.path.normpath(f"{site}/{path}"), data)
        return folder

    def inventory(self) -> Inventory:
        with DirectoryTree(self.root) as tree:
            return collect(tree)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


def test_a_distribution_is_read_from_its_metadata(image: Image) -> None:
    folder = image.distribution(
        "Torch_Audio",
        "2.1+cpu",
        {"torchaudio/_c.so": ELF, "../../../bin/tool": b"#!python"},
        requires=("torch==2.1", 'numpy ; extra == "all"'),
    )
    image.file(f"{folder}/INSTALLER", "uv\n")
    image.file(f"{folder}/REQUESTED")
    image.file(
        f"{folder}/direct_url.json",
        json.dumps({"url": "https://user:secret@wheels.example.com/a.whl?token=secret#x"}),
    )
    inventory = image.inventory()
    (found,) = inventory.distributions
    assert (found.name, found.version, found.path) == ("torch-audio", "2.1+cpu", folder)
    assert found.requires == ("torch==2.1", 'numpy ; extra == "all"')
    assert (found.installer, found.requested) == ("uv", True)
    assert found.direct_url == "https://wheels.example.com/a.whl"
    assert found.files == 3
    assert inventory.binaries[0].owner == "torch-audio==2.1+cpu"
    assert inventory.unread == ()


def test_scripts_and_data_outside_of_site_packages_have_an_owner(image: Image) -> None:
    image.distribution("mkl", "2026.2", {"../../libmkl_rt.so.3": ELF})
    (binary,) = image.inventory().binaries
    assert (binary.path, binary.owner) == ("usr/lib/libmkl_rt.so.3", "mkl==2026.2")


def test_a_record_cannot_claim_files_outside_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(ELF)
    image = Image(tmp_path / "root")
    image.file("keep")
    image.distribution("evil", "1", {}, site="site")
    image.file("site/evil-1.dist-info/RECORD", "../../secret,,\n/../secret,,\n../keep,,\n")
    (found,) = image.inventory().distributions
    assert found.files == 1


def test_libraries_count_wherever_they_lie_and_whatever_they_are_called(image: Image) -> None:
    for path in ("opt/rocm/lib/libx.so.1", "usr/local/cuda/bin/ptxas", "srv/data.bin"):
        image.file(path, ELF)
    image.file("usr/lib/libm.so", "/* a linker script */")
    image.file("empty.so", b"")
    inventory = image.inventory()
    assert [binary.path for binary in inventory.binaries] == [
        "opt/rocm/lib/libx.so.1",
        "srv/data.bin",
        "usr/local/cuda/bin/ptxas",
    ]
    assert inventory.stats.files == 5


def test_hard_links_are_one_binary_under_the_name_that_a_distribution_owns(image: Image) -> None:
    image.distribution("x", "1", {"x/libx.so": ELF})
    (image.root / "cache").mkdir()
    os.link(image.root / SITE / "x/libx.so", image.root / "cache/archive")
    inventory = image.inventory()
    (binary,) = inventory.binaries
    assert (binary.path, binary.owner) == (f"{SITE}/x/libx.so", "x==1")
    assert inventory.links == (Link("cache/archive", f"/{SITE}/x/libx.so", hard=True),)


def test_links_that_the_loader_passes_are_kept_and_no_others(image: Image) -> None:
    image.file("usr/lib/libx.so.1.2", ELF)
    image.file("usr/share/doc/readme", "text")
    image.link("lib", "usr/lib")
    image.link("usr/lib/libx.so.1", "libx.so.1.2")
    image.link("usr/lib/libx.so", "/etc/alternatives/libx")
    image.link("usr/bin/editor", "/bin/vi")
    image.link("doc", "usr/share/doc")
    assert image.inventory().links == (
        Link("lib", "usr/lib"),
        Link("usr/lib/libx.so", "/etc/alternatives/libx"),
        Link("usr/lib/libx.so.1", "libx.so.1.2"),
    )


def test_a_path_of_two_distributions_tells_whose_bytes_are_there(image: Image) -> None:
    image.distribution("triton", "3.0", {"triton/lib.so": ELF})
    image.distribution("triton-rocm", "3.0", {"triton/lib.so": ELF + b"rocm"})
    inventory = image.inventory()
    assert inventory.shared_paths == (
        SharedPath(
            f"{SITE}/triton/lib.so", ("triton-rocm==3.0", "triton==3.0"), ("triton-rocm==3.0",)
        ),
    )
    assert inventory.binaries[0].owner == "triton-rocm==3.0"


def test_a_shared_path_without_hashes_says_that_it_was_not_checked(image: Image) -> None:
    image.distribution("a", "1", {})
    image.distribution("b", "1", {})
    image.file(f"{SITE}/tests/x.py", "x")
    for name in "ab":
        image.file(f"{SITE}/{name}-1.dist-info/RECORD", "tests/x.py,,\n")
    assert image.inventory().shared_paths == (
        SharedPath(f"{SITE}/tests/x.py", ("a==1", "b==1"), None),
    )


def test_records_without_end_cost_no_more_than_their_bound_and_are_told(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        image.distribution(name, "1", {f"{name}.py": b"x"})
        image.file(f"{SITE}/{name}-1.dist-info/RECORD", f"{name}.py,,\n" + "x,,\n" * 100)
    record = (image.root / f"{SITE}/a-1.dist-info/RECORD").stat().st_size
    monkeypatch.setattr(distributions, "ALL_RECORDS", 2 * record)
    inventory = image.inventory()
    assert [found.name for found in inventory.distributions] == ["a", "b", "c"]
    assert [item.path for item in inventory.unread] == [f"{SITE}/c-1.dist-info/RECORD"]
    assert [found.files for found in inventory.distributions] == [1, 1, 0]


def test_a_vendored_distribution_is_a_part_of_the_one_around_it(image: Image) -> None:
    inner = f"{SITE}/setuptools/_vendor"
    folder = image.distribution("wheel", "0.45", {"wheel/a.py": b"a"}, site=inner)
    files = {
        f"setuptools/_vendor/{path}": (image.root / inner / path).read_bytes()
        for path in ("wheel/a.py", f"{Path(folder).name}/METADATA")
    }
    image.distribution("setuptools", "80", files)
    inventory = image.inventory()
    assert [found.name for found in inventory.distributions] == ["setuptools"]
    assert inventory.shared_paths == ()


def test_a_metadata_folder_among_the_data_of_tests_is_no_distribution(image: Image) -> None:
    # Without METADATA: what reads entry points has such folders in its tests.
    files = {"codecs/tests/plugin-0.1.dist-info/entry_points.txt": b"[codecs]\na = b:C\n"}
    image.distribution("codecs", "1", files)
    inventory = image.inventory()
    assert [found.name for found in inventory.distributions] == ["codecs"]
    assert inventory.unread == ()


def test_a_neighbour_cannot_hide_a_distribution_by_listing_its_metadata(image: Image) -> None:
    folder = image.distribution("smuggler", "1", {})
    image.distribution("host", "1", {})
    image.file(f"{SITE}/host-1.dist-info/RECORD", f"{Path(folder).name}/METADATA,,\n")
    assert [found.name for found in image.inventory().distributions] == ["host", "smuggler"]


def test_distributions_of_several_roots_and_of_debian_are_found(image: Image) -> None:
    image.distribution("numpy", "1.26", {}, site="opt/venv/lib/python3.11/site-packages")
    image.file(
        "usr/lib/python3/dist-packages/numpy-1.24.egg-info/PKG-INFO", "Name: numpy\nVersion: 1.24\n"
    )
    image.file(
        "usr/lib/python3/dist-packages/six-1.16.0.egg-info", "Name: six\nVersion: 1.16.0\n\nx"
    )
    found = image.inventory().distributions
    assert [(one.name, one.version, one.has_record) for one in found] == [
        ("numpy", "1.26", True),
        ("numpy", "1.24", False),
        ("six", "1.16.0", False),
    ]


@pytest.mark.parametrize(
    ("path", "data", "padding", "why"),
    [
        ("METADATA", None, 0, "no METADATA"),
        ("METADATA", b"\xff\xfe\x00garbage", 0, "no Name or no Version"),
        ("METADATA", b"Name: x\nVersion: 1\n\n", 5 << 20, "larger than"),
        ("RECORD", b'"', 200_000, "no readable CSV"),
        ("direct_url.json", b"[" * 60_000, 0, "PEP 610"),
        ("direct_url.json", b'{"url": 3}', 0, "PEP 610"),
        ("direct_url.json", b'{"url": "https://[x"}', 0, "PEP 610"),
    ],
)
def test_broken_metadata_is_reported_and_the_distribution_stays(
    image: Image, path: str, data: bytes | None, padding: int, why: str
) -> None:
    folder = image.distribution("x", "1", {})
    if data is None:
        (image.root / folder / path).unlink()
    else:
        image.file(f"{folder}/{path}", data + b"x" * padding)
    inventory = image.inventory()
    (found,) = inventory.distributions
    assert (found.name, found.version) == ("x", "1")
    (unread,) = inventory.unread
    assert why in unread.why
    assert unread.path.startswith(folder)


def fat_binary(sm: int) -> bytes:
    """A CUDA fat binary with one cubin of 8 bytes."""
    entry = struct.pack("<HHIQIIHHIIIQ", 2, 0x101, 64, 8, 0, 0, 0, 0, sm, 0, 0, 0) + bytes(16 + 8)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def test_files_of_device_code_are_read_for_what_they_hold(image: Image) -> None:
    object_for = struct.pack("<H", 190)  # EM_CUDA in the place of x86-64
    image.file("a/kernel.cubin", ELF[:18] + object_for + ELF[20:48] + b"\x5a" + ELF[49:])
    image.file("a/kernels", fat_binary(90))
    image.file("a/kernel.ptx", b".version 8.0\n.target sm_90a\n.address_size 64\n")
    image.file("a/notes.bc", b"scale=3\n")
    inventory = image.inventory()
    assert [
        (one.path, one.kind, [code.arch for code in one.device_code]) for one in inventory.artefacts
    ] == [
        ("a/kernel.cubin", "cubin", ["sm_90"]),
        ("a/kernel.ptx", "ptx", ["compute_90a"]),
        ("a/kernels", "fatbin", ["sm_90"]),
    ]
    assert (inventory.binaries, inventory.unread) == ((), ())


def test_a_static_archive_tells_what_its_members_hold(image: Image) -> None:
    text = b"CUDA driver version is insufficient for CUDA runtime version"
    section = struct.pack("<10I", 0, 1, 2, 0, 52, len(text), 0, 0, 1, 0)
    header = struct.pack(
        "<4s4B8x2H5I6H", b"\x7fELF", 1, 1, 1, 0, 1, 3, 1, 0, 0, 112, 0, 52, 0, 0, 40, 2, 0
    )
    member = header + text + bytes(112 - len(header) - len(text)) + bytes(40) + section
    image.file("a/libours.a", b"!<arch>\n" + b"a.o/".ljust(48) + b"%-10d`\n" % 192 + member)
    (one,) = image.inventory().artefacts
    assert (one.kind, one.device_code) == ("a", ())
    assert [(mark.name, mark.offset) for mark in one.marks] == [("cudart-error-string", 68 + 52)]


def test_a_file_of_device_code_that_says_nothing_stays_with_the_reason(image: Image) -> None:
    image.file("a/kernel.kpack", b"????")
    image.file("a/kernel.fatbin", b"\x50\xed\x55\xba\x01\x00\x10\x00")
    (fatbin, kpack) = image.inventory().artefacts
    assert [code.arch for code in (*fatbin.device_code, *kpack.device_code)] == [None, None]
    assert [code.note for code in fatbin.device_code] == ["there is no container in the file"]
    assert [code.note for code in kpack.device_code] == ["the file ends inside its header"]


def test_an_archive_that_is_cut_short_is_not_read(image: Image) -> None:
    image.file("a/libcudart_static.a", b"!<arch>\nxxxx")
    inventory = image.inventory()
    assert [one.kind for one in inventory.artefacts] == ["a"]
    why = "the archive is damaged: there is no member at offset 8"
    assert inventory.unread == (Unread("a/libcudart_static.a", why),)


def test_system_packages_come_from_dpkg_and_apk_without_removed_ones(image: Image) -> None:
    image.file(
        "var/lib/dpkg/status",
        "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\nDescription: C\n more\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"
        "Package: cuda-cudart-12-8\nStatus: hold ok installed\nVersion: 12.8.90-1\n"
        "Provides: cudart (= 12.8)\n",
    )
    image.file(
        "var/lib/dpkg/status.d/tzdata",
        "Package: tzdata\nVersion: 2025b\nArchitecture: all\n"
        "Depends: cudart:any (>= 12) | other, libc6 (>= 2)\n",
    )
    image.file("var/lib/dpkg/status.d/tzdata.md5sums", "0123 usr/share/x\n")
    image.file(
        "lib/apk/db/installed",
        "C:Q1xx=\nP:musl\nV:1.2.5-r0\nA:x86_64\n\nP:libc\nV:1\np:so:libc.musl.so.1=1\n\n"
        "P:zlib\nV:1.3\nL:Zlib\nD:so:libc.musl.so.1 x>=1\n",
    )
    assert image.inventory().system_packages == (
        SystemPackage("cuda-cudart-12-8", "12.8.90-1"),
        SystemPackage("libc", "1", "apk"),
        SystemPackage("libc6", "2.36-9"),
        SystemPackage("musl", "1.2.5-r0", "apk", "x86_64"),
        SystemPackage("tzdata", "2025b", "deb", "all", requires=("cuda-cudart-12-8", "libc6")),
        SystemPackage("zlib", "1.3", "apk", license="Zlib", requires=("libc",)),
    )


def test_ld_so_conf_is_followed_in_order_inside_of_the_tree(image: Image) -> None:
    image.file("etc/ld.so.conf", "/first # why\ninclude ld.so.conf.d/*.conf\n/last,/more\n")
    image.file("etc/ld.so.conf.d/b.conf", "/usr/local/cuda/lib64\nhwcap 0 nosegneg\n")
    image.file("etc/ld.so.conf.d/a.conf", "/opt/rocm/lib/\ninclude /etc/ld.so.conf\n")
    image.file("etc/ld.so.conf.d/ignored.txt", "/ignored\n")
    image.file("etc/elsewhere", "/opt/intel\nrelative\n")
    image.link("etc/ld.so.conf.d/c.conf", "/etc/elsewhere")
    image.link("etc/ld.so.conf.d/d.conf", "d.conf")
    assert image.inventory().library_folders == (
        "first",
        "opt/rocm/lib",
        "usr/local/cuda/lib64",
        "opt/intel",
        "last",
        "more",
    )


def test_endless_includes_are_cut_and_reported(image: Image) -> None:
    image.file("etc/ld.so.conf", "include *.conf\n" * 500)
    (unread,) = image.inventory().unread
    assert (unread.path, "includes" in unread.why) == ("etc/ld.so.conf", True)


def test_names_that_are_not_utf_8_are_told_readably(image: Image) -> None:
    image.file(os.fsdecode(b"lib\xff.so"), ELF)
    (binary,) = image.inventory().binaries
    assert binary.path == r"lib\xff.so"


def test_a_name_that_reads_like_another_one_is_not_lost_in_silence(image: Image) -> None:
    image.file(r"lib\xff.so", ELF)
    image.file(os.fsdecode(b"lib\xff.so"), ELF)
    (unread,) = image.inventory().unread
    assert "reads the same" in unread.why


def test_a_header_that_cannot_be_used_is_reported(image: Image) -> None:
    image.file("libx.so", ELF[:20])
    inventory = image.inventory()
    assert inventory.binaries == ()
    (unread,) = inventory.unread
    assert unread.path == "libx.so"


def test_the_environment_of_the_image_is_kept(image: Image) -> None:
    with DirectoryTree(image.root) as tree:
        assert collect(tree, {"LD_LIBRARY_PATH": "/x"}).environment == {"LD_LIBRARY_PATH": "/x"}


def test_two_scans_say_the_same(image: Image) -> None:
    image.distribution("x", "1", {"x/libx.so": ELF, "x/liby.so": ELF + b"y"})
    first, second = image.inventory(), image.inventory()
    assert first.binaries == second.binaries
    assert first.distributions == second.distributions


def test_a_wheel_gives_the_facts_that_its_installed_files_would(tmp_path: Path) -> None:
    wheel = tmp_path / "mkl.whl"
    names = ("mkl-1.data/data/lib/libmkl.so.3", "mkl/_c.so")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, ELF)
        archive.writestr("../evil.so", ELF)
        archive.writestr("mkl-1.dist-info/METADATA", "Name: mkl\nVersion: 1\n")
        archive.writestr("mkl-1.dist-info/RECORD", "".join(f"{name},,\n" for name in names))
    with WheelTree(wheel) as tree:
        inventory = collect(tree)
    assert [(binary.path, binary.owner) for binary in inventory.binaries] == [
        ("lib/libmkl.so.3", "mkl==1"),
        ("mkl/_c.so", "mkl==1"),
    ]
    assert inventory.distributions[0].files == 2
    assert [unread.path for unread in inventory.unread] == ["../evil.so"]


def test_a_broken_member_of_a_wheel_is_reported(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("libx.so", ELF)
    data = wheel.read_bytes().replace(ELF, ELF[:-1] + b"\x01", 1)
    wheel.write_bytes(data)
    with WheelTree(wheel) as tree:
        inventory = collect(tree)
    assert inventory.binaries == ()
    (unread,) = inventory.unread
    assert isinstance(unread, Unread) and "CRC" in unread.why
