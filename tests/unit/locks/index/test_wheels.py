"""The facts of wheels at each depth, from files and from a server."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from elf_images import Image, Part, fat_binary, fat_entry
from index import IndexServer, ignoring_ranges

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory, Stats
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.model import HEAD, WheelCache
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Wheel

NAME = "alpha-1.0-py3-none-manylinux_2_28_x86_64.whl"
CUDART = b"CUDA driver version is insufficient for CUDA runtime version\0"
SBOM = {"bomFormat": "CycloneDX", "components": [{"purl": "pkg:rpm/almalinux/zlib@1.2.11"}]}


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def small_library() -> bytes:
    return Image(needed=("libcudart.so.12",), strings={14: "libsmall.so"}).build()


def large_library(*, before: int = 600_000, behind: int = 3_000_000) -> bytes:
    """A library whose device code begins behind `before` bytes that deflate cannot shrink."""
    code = fat_binary(fat_entry(2, 80, noise(5000)), fat_entry(2, 90, noise(5000)))
    parts = (
        Part(".text", noise(before), flags=6),
        Part(".rodata", b"\0libcuda.so.1\0" + CUDART),
        Part(".nv_fatbin", code * 3),
        Part(".data", noise(behind, 2)),
    )
    return Image(needed=("libm.so.6",), parts=parts).build()


def contents(name: str = "alpha", version: str = "1.0") -> dict[str, bytes]:
    info = f"{name}-{version}.dist-info"
    files = {
        "alpha/__init__.py": b"import ctypes\nctypes.CDLL('libcuda.so.1')\n",
        "alpha/lib/libsmall.so": small_library(),
        "alpha/lib/liblarge.so": large_library(),
        "alpha/tool": small_library(),
        "alpha/data.json": b"{}" * 100,
        "alpha/kernel.ptx": b".version 8.0\n.target sm_90\n" + b"//" * 100,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nRequires-Dist: beta>=2\n"
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\n",
        f"{info}/entry_points.txt": b"[console_scripts]\nalpha = alpha:main\n",
        f"{info}/sboms/auditwheel.cdx.json": json.dumps(SBOM).encode(),
        f"{info}/licenses/LICENSE": b"text",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    return {**files, f"{info}/RECORD": record.encode()}


def make(folder: Path, name: str = NAME, files: dict[str, bytes] | None = None) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in (files or contents()).items():
            archive.writestr(member, data)
    return path


def locked(path: Path, url: str | None = None) -> Wheel:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel(path.name, url or str(path), sha256, path.stat().st_size)


def bare(inventory: Inventory) -> Inventory:
    return replace(inventory, stats=Stats())


def scanned(path: Path) -> Inventory:
    with WheelTree(path) as tree:
        return bare(collect(tree))


@pytest.fixture
def wheel(packages: Path) -> Path:
    return make(packages)


@pytest.fixture
def served(packages: Path, client: Client) -> Callable[[Path], tuple[WheelReader, Wheel]]:
    def serve(path: Path) -> tuple[WheelReader, Wheel]:
        return WheelReader(client, None), locked(path, server.file_url(path.name))

    server = IndexServer(packages)
    server.__enter__()
    try:
        yield serve
    finally:
        server.__exit__(None, None, None)


def test_a_listing_opens_nothing_but_the_metadata(wheel: Path, served) -> None:
    reader, entry = served(wheel)
    facts = reader.read(entry, "listing")
    assert [one.path for one in facts.inventory.closed] == [
        "alpha/__init__.py", "alpha/kernel.ptx", "alpha/lib/liblarge.so", "alpha/lib/libsmall.so",
        "alpha/tool",
    ]  # fmt: skip
    assert {one.owner for one in facts.inventory.closed} == {"alpha==1.0"}
    (found,) = facts.inventory.distributions
    assert (found.name, found.version, found.requires) == ("alpha", "1.0", ("beta>=2",))
    assert found.entry_points[0].value == "alpha:main"
    assert found.components == ("pkg:rpm/almalinux/zlib@1.2.11",)
    assert facts.inventory.binaries == facts.inventory.unread == ()
    assert len(facts.members) == len(contents())
    assert 0 < facts.bytes_read < facts.size // 10


def test_heads_read_small_files_whole_and_the_beginning_of_large_ones(wheel: Path, served) -> None:
    reader, entry = served(wheel)
    facts = reader.read(entry, "heads")
    binaries = {one.path: one.elf for one in facts.inventory.binaries}
    assert binaries["alpha/lib/libsmall.so"].needed == ("libcudart.so.12",)
    assert binaries["alpha/lib/libsmall.so"].read is None
    assert binaries["alpha/tool"].read is None
    large = binaries["alpha/lib/liblarge.so"]
    assert large.read is not None and HEAD // 2 < large.read < 2 * HEAD
    assert large.device_code == ()
    assert [one.path for one in facts.inventory.artefacts] == ["alpha/kernel.ptx"]
    assert [one.names for one in facts.inventory.python_loads] == [("libcuda.so.1",)]
    assert facts.inventory.closed == ()
    assert facts.bytes_read < facts.size // 4


def test_bytes_that_may_be_spent_go_to_a_large_binary_until_device_code_was_seen(
    wheel: Path, served
) -> None:
    reader, entry = served(wheel)
    facts = reader.read(entry, "heads", most=wheel.stat().st_size // 2)
    (large,) = [one.elf for one in facts.inventory.binaries if one.path.endswith("liblarge.so")]
    assert [one.arch for one in large.device_code] == ["sm_80", "sm_90"]
    assert all("may be incomplete" in (one.note or "") for one in large.device_code)
    assert [one.name for one in large.marks] == ["cudart-error-string"]
    assert [one.text for one in large.literals] == ["libcuda.so.1"]
    assert facts.bytes_read < facts.size // 2


def test_what_no_bytes_were_left_for_stays_closed_and_is_told(wheel: Path, served) -> None:
    reader, entry = served(wheel)
    facts = reader.read(entry, "heads", most=HEAD + 2000)
    read = {one.path for one in facts.inventory.binaries}
    closed = {one.path for one in facts.inventory.closed}
    assert "alpha/lib/liblarge.so" in read
    assert read | closed >= {"alpha/lib/libsmall.so", "alpha/lib/liblarge.so", "alpha/tool"}
    nothing = reader.read(entry, "heads", most=0)
    assert len(nothing.inventory.closed) == 5


def test_a_whole_wheel_says_on_a_server_what_it_says_in_a_file(wheel: Path, served) -> None:
    reader, entry = served(wheel)
    facts = reader.read(entry, "whole")
    assert bare(facts.inventory) == scanned(wheel)
    assert facts.size <= facts.bytes_read < 1.1 * facts.size


def test_a_binary_too_large_to_be_held_says_the_same(
    wheel: Path, served, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = scanned(wheel)
    monkeypatch.setattr("buildmatrix.facts.trees.zip_archive.LARGEST_HELD", 100_000)
    reader, entry = served(wheel)
    assert bare(reader.read(entry, "whole").inventory) == expected


def test_a_server_without_ranges_is_read_once_from_start_to_end(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), ignoring_ranges())
        facts = WheelReader(client, None).read(
            locked(wheel, server.file_url(wheel.name)), "listing"
        )
    assert facts.depth == "whole"
    assert bare(facts.inventory) == scanned(wheel)


@pytest.mark.parametrize("depth", ["listing", "heads", "whole"])
def test_a_file_of_this_machine_is_read_without_an_index(wheel: Path, depth: str) -> None:
    reader = WheelReader(None, None)
    for url in (str(wheel), wheel.as_uri()):
        facts = reader.read(locked(wheel, url), depth)
        assert (facts.depth, facts.bytes_read) == (depth, 0)
        assert facts.inventory.distributions[0].name == "alpha"


def test_facts_are_asked_for_once_and_a_deeper_answer_serves_a_shallower_question(
    packages: Path, wheel: Path, client: Client, tmp_path: Path
) -> None:
    with IndexServer(packages) as server:
        entry = locked(wheel, server.file_url(wheel.name))
        reader = WheelReader(client, Cache(tmp_path / "facts"))
        first = reader.read(entry, "heads")
        asked = len(server.requests)
        again = WheelReader(client, Cache(tmp_path / "facts")).read(entry, "heads")
        shallower = reader.read(entry, "listing")
        assert len(server.requests) == asked
        assert reader.read(entry, "heads", most=2_000_000).bytes_read > 0
        assert reader.read(entry, "heads", most=1_000_000).bytes_read == 0
    assert first.bytes_read > 0 == again.bytes_read == shallower.bytes_read
    assert bare(first.inventory) == bare(again.inventory)
    assert again.inventory.stats.cached == again.inventory.stats.files > 0
    assert (again.members, again.size) == (first.members, first.size)


def test_no_cache_entry_says_where_a_wheel_came_from(
    packages: Path, wheel: Path, client: Client, tmp_path: Path
) -> None:
    with IndexServer(packages) as server:
        url = server.file_url(wheel.name).replace("://", "://user:secret@")
        WheelReader(client, Cache(tmp_path / "facts")).read(locked(wheel, url), "heads")
    (entry,) = (path for path in (tmp_path / "facts").rglob("*") if path.is_file())
    plain = zlib.decompress(entry.read_bytes()[40:])
    assert b"alpha/lib/liblarge.so" in plain
    assert b"secret" not in plain and b"127.0.0.1" not in plain
    assert entry.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_entry_is_read_again(wheel: Path, tmp_path: Path, damage: bytes | None) -> None:
    reader = WheelReader(None, Cache(tmp_path / "facts"))
    first = reader.read(locked(wheel), "heads")
    (entry,) = (path for path in (tmp_path / "facts").rglob("*") if path.is_file())
    entry.write_bytes(entry.read_bytes()[:-5] if damage is None else damage)
    assert bare(reader.read(locked(wheel), "heads").inventory) == bare(first.inventory)
    assert len(entry.read_bytes()) > 100


def test_a_folder_that_cannot_be_written_costs_the_cache_only(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "facts").write_text("a file where a folder should be")
    facts = WheelReader(None, Cache(tmp_path / "facts")).read(locked(wheel), "listing")
    assert facts.inventory.distributions


def test_a_full_cache_lets_go_of_what_was_not_used_for_longest(
    wheel: Path, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WheelReader(None, Cache(tmp_path / "facts")).read(locked(wheel), "listing")
    other = make(packages, "beta-1-py3-none-any.whl", contents("beta", "1"))
    for path in (tmp_path / "facts").rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - 9000,) * 2)
            old = path
    monkeypatch.setattr(WheelCache.__init__, "__defaults__", (old.stat().st_size + 100,))
    abandoned = old.with_name(".half-written")
    abandoned.write_bytes(b"x")
    os.utime(abandoned, (1, 1))
    WheelReader(None, Cache(tmp_path / "facts")).read(locked(other), "listing")
    left = [path for path in (tmp_path / "facts").rglob("*") if path.is_file()]
    assert len(left) == 1 and old not in left


def test_many_threads_ask_for_the_same_wheel_and_get_the_same_facts(
    packages: Path, wheel: Path, client: Client, tmp_path: Path
) -> None:
    with IndexServer(packages) as server, ThreadPoolExecutor(8) as pool:
        entry = locked(wheel, server.file_url(wheel.name))
        reader = WheelReader(client, Cache(tmp_path / "facts"))
        answers = list(pool.map(lambda _: reader.read(entry, "heads", most=10**7), range(8)))
    assert len({repr(bare(one.inventory)) for one in answers}) == 1


@pytest.mark.parametrize(
    ("filename", "sentence"),
    [
        ("beta-1.0-py3-none-any.whl", "holds alpha 1.0 by its own metadata, not beta 1.0"),
        ("alpha-2.0-py3-none-any.whl", "holds alpha 1.0 by its own metadata, not alpha 2.0"),
        ("alpha.whl", "not a valid name of a wheel"),
    ],
)
def test_a_wheel_that_its_metadata_call_something_else_is_refused(
    wheel: Path, filename: str, sentence: str
) -> None:
    entry = replace(locked(wheel), filename=filename)
    with pytest.raises(UndecidedError, match=sentence):
        WheelReader(None, None).read(entry, "listing")


def test_metadata_may_lack_the_local_version_of_the_file_name(wheel: Path, tmp_path: Path) -> None:
    entry = replace(locked(wheel), filename="alpha-1.0+cu130torch29-py3-none-any.whl")
    reader = WheelReader(None, Cache(tmp_path / "facts"))
    for depth in ("listing", "whole", "listing"):
        inventory = reader.read(entry, depth).inventory
        assert [item.owner for item in inventory.distributions] == ["alpha==1.0+cu130torch29"]
        owners = {item.owner for item in (*inventory.binaries, *inventory.closed)}
        assert owners == {"alpha==1.0+cu130torch29"}
    # The same bytes under their own name are what they say.
    assert reader.read(locked(wheel), "whole").inventory.distributions[0].version == "1.0"
    labeled = replace(locked(wheel), filename="alpha-1.1+cu130-py3-none-any.whl")
    with pytest.raises(UndecidedError, match="by its own metadata"):
        reader.read(labeled, "listing")


def test_another_file_than_the_locked_one_is_refused(wheel: Path, served) -> None:
    with pytest.raises(UndecidedError, match="it changed since it was locked"):
        WheelReader(None, None).read(replace(locked(wheel), sha256="0" * 64), "listing")
    with pytest.raises(UndecidedError, match="the lock says 5"):
        WheelReader(None, None).read(replace(locked(wheel), size=5), "listing")
    reader, entry = served(wheel)
    with pytest.raises(UndecidedError, match="another file than the one that was locked"):
        reader.read(replace(entry, sha256="0" * 64), "whole")
    with pytest.raises(UndecidedError, match="announced"):
        reader.read(replace(entry, size=5), "listing")


def test_what_is_no_wheel_is_told_in_one_sentence(packages: Path, tmp_path: Path) -> None:
    reader = WheelReader(None, None)
    text = packages / NAME
    text.write_bytes(b"not a zip")
    with pytest.raises(UndecidedError, match=f"{NAME} cannot be read: no readable ZIP archive"):
        reader.read(locked(text), "listing")
    with pytest.raises(UndecidedError, match="no metadata folder"):
        reader.read(locked(make(packages, files={"a.py": b"x = 1"})), "listing")
    missing = Wheel(NAME, str(tmp_path / "missing.whl"), "0" * 64)
    with pytest.raises(UndecidedError, match=r"missing\.whl cannot be read: no such file"):
        reader.read(missing, "listing")


def test_a_member_that_lies_is_unread_and_costs_no_other(packages: Path) -> None:
    path = make(packages)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"alpha/lib/libsmall.so") - 46
    struct.pack_into("<I", data, at + 16, 12345)  # its CRC in the directory
    path.write_bytes(data)
    for depth in ("heads", "whole"):
        facts = WheelReader(None, None).read(locked(path), depth)
        (unread,) = facts.inventory.unread
        assert unread.path == "alpha/lib/libsmall.so"
        assert "CRC" in unread.why
        assert "alpha/tool" in {one.path for one in facts.inventory.binaries}


def test_the_same_question_gets_the_same_answer(wheel: Path, served) -> None:
    reader, entry = served(wheel)
    local = WheelReader(None, None).read(locked(wheel), "heads", most=1_000_000)
    remote = reader.read(entry, "heads", most=1_000_000)
    assert bare(local.inventory) == bare(remote.inventory)


def test_an_sbom_that_is_none_is_unread(packages: Path) -> None:
    files = {**contents(), "alpha-1.0.dist-info/sboms/x.json": b"{"}
    facts = WheelReader(None, None).read(locked(make(packages, files=files)), "listing")
    assert [one.path for one in facts.inventory.unread] == ["alpha-1.0.dist-info/sboms/x.json"]
    nested = {"packages": [{"externalRefs": [
        {"referenceType": "purl", "referenceLocator": "pkg:pypi/x@1"}, 5, {"referenceType": []},
    ]}, 7], "components": {"a": 1}}  # fmt: skip
    files["alpha-1.0.dist-info/sboms/x.json"] = json.dumps(nested).encode()
    facts = WheelReader(None, None).read(locked(make(packages, files=files)), "listing")
    assert facts.inventory.distributions[0].components == (
        "pkg:pypi/x@1", "pkg:rpm/almalinux/zlib@1.2.11",
    )  # fmt: skip
