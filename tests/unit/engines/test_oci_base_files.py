from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
import zstandard
from oci_world import SYSTEM, LayerFile, file, folder, link, make_base

from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines.oci.base_files import BaseFiles, notes_store, read_layer
from buildmatrix.facts.trees import archive as archive_reading
from buildmatrix.images.documents import LAYER_GZIP, Descriptor
from buildmatrix.images.layout import OciLayout
from buildmatrix.images.store.cache import Cache


def base_files(tmp_path: Path, *layers: list[LayerFile] | tuple[LayerFile, ...]) -> BaseFiles:
    base = make_base(tmp_path, *layers)
    store = notes_store(Cache(None))
    return BaseFiles([read_layer(base.layout, layer, store) for layer in base.manifest.layers])


def stored(layout: OciLayout, data: bytes) -> Descriptor:
    return layout.put(data, LAYER_GZIP)


def archive(*members: tarfile.TarInfo) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return data.getvalue()


def test_links_are_followed_below_the_root(tmp_path: Path) -> None:
    files = base_files(
        tmp_path,
        [
            folder("usr/lib/x"), link("lib", "usr/lib"), link("up", "../../../usr"),
            link("a", "b"), link("b", "a"), link("usr/lib/y", "/lib/x"), file("f"),
        ],
    )  # fmt: skip
    assert files.resolve("/lib/x") == "usr/lib/x"
    assert files.resolve("lib/y") == "usr/lib/x"
    assert files.resolve("/up/../up/lib/./x") == "usr/lib/x"
    assert files.resolve("a") is None and files.resolve_new("a/x") is None
    assert files.resolve_new("/lib/new/file") == "usr/lib/new/file"
    assert files.resolve_new("f/below") is None
    assert files.resolve_new("../../etc") == "etc"


def test_a_later_layer_hides_what_is_below(tmp_path: Path) -> None:
    base = make_base(tmp_path, SYSTEM, [file("etc/group", "g")])
    below, above = base.manifest.layers
    removing = [tarfile.TarInfo(name) for name in ("etc/.wh.passwd", "home/.wh..wh..opq")]
    layers = below, stored(base.layout, gzip.compress(archive(*removing))), above
    files = BaseFiles(read_layer(base.layout, one, notes_store(Cache(None))) for one in layers)
    assert files.read("etc/passwd") is None
    assert files.read("etc/group") == b"g"


@pytest.mark.parametrize(
    ("path", "home"),
    [
        ("/usr/local/bin:/usr/bin", "/usr/local/bin"),
        ("/usr/bin", "/usr/bin"),
        ("/bin", "/usr/bin"),
        ("/nowhere:/usr/bin/", "/usr/bin"),
    ],
)
def test_python_is_found_as_a_shell_finds_it(tmp_path: Path, path: str, home: str) -> None:
    python = base_files(tmp_path, SYSTEM).python("3.11", path)
    assert python is not None
    assert (python.home, python.version) == (home, "3.11.2")


def test_a_python_outside_of_its_folder_is_followed_home(tmp_path: Path) -> None:
    files = [*SYSTEM, link("srv/python3.11", "../usr/bin/python3.11")]
    python = base_files(tmp_path, files).python("3.11", "/srv")
    assert python is not None and python.executable == "/usr/bin/python3.11"


def test_a_small_python_is_what_its_library_is(tmp_path: Path) -> None:
    files = [
        file("usr/local/bin/python3.12", b"\x7fELF", 0o755),
        file("usr/local/lib/libpython3.12.so.1.0", b"\x003.12.9\x00\x003.11.1\x00"),
        file("usr/local/lib/python3.12/os.py"),
    ]
    python = base_files(tmp_path, files).python("3.12", "/usr/local/bin")
    assert python is not None and python.version == "3.12.9"
    assert base_files(tmp_path / "x", files).python("3.13", "/usr/local/bin") is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "no archive", "no end", "bomb"])
@pytest.mark.parametrize(
    "packed", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress]
)
def test_a_layer_that_lies_is_refused(
    tmp_path: Path, damage: str, packed: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(packed)
    monkeypatch.setattr(archive_reading, "INFLATION_ALLOWANCE", 1 << 20)
    layout = OciLayout(tmp_path)
    member = tarfile.TarInfo("etc/passwd")
    member.size = 100_000
    data = archive(member)
    if damage == "no archive":
        blob = packed(b"x" * 10_000)
    elif damage == "no end":
        blob = packed(data[:-10240])
    elif damage == "bomb":
        blob = packed(bytes(32 << 20))
    else:
        noise = b"".join(hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(4000))
        blob = packed(data + noise)
        middle = len(blob) // 2
        blob = (
            blob[:middle] if damage == "cut" else blob[:middle] + b"\xff" * 9 + blob[middle + 9 :]
        )
    with pytest.raises(UndecidedError):
        read_layer(layout, stored(layout, blob), notes_store(Cache(None)))


def test_devices_and_paths_that_lead_out_are_no_files(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    device, outside, passwd = map(tarfile.TarInfo, ("dev/x", "../etc/passwd", "./etc/passwd"))
    device.type = tarfile.CHRTYPE
    outside.size = passwd.size = 3
    blob = stored(layout, gzip.compress(archive(device, outside, passwd)))
    files = BaseFiles([read_layer(layout, blob, notes_store(Cache(None)))])
    assert set(files.entries) == {"", "dev", "etc", "etc/passwd"}
    assert files.read("etc/passwd") == bytes(3)


@pytest.mark.parametrize("size", [10, (16 << 20) + 1])
def test_bytes_that_were_not_kept_are_not_taken_for_none(tmp_path: Path, size: int) -> None:
    place = "etc/passwd" if size > 10 else "srv/passwd"
    files = base_files(
        tmp_path, [file(place, bytes(size)), *([link("etc/passwd", "/srv/passwd")] * (size == 10))]
    )
    with pytest.raises(UndecidedError, match="/etc/passwd of the base image: it is too large"):
        files.read("etc/passwd")


def test_what_a_layer_says_is_read_once(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    store = notes_store(Cache(tmp_path / "cache"))
    (layer,) = base.manifest.layers
    first = read_layer(base.layout, layer, store)
    base.layout.path(layer.digest).unlink()
    assert read_layer(base.layout, layer, store) == first
