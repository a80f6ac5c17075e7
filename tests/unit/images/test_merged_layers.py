"""The merge of layers' facts is the inventory of the files that a container sees."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import lzma
import random
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_archives import (
    Blobs,
    Entry,
    configuration,
    differences,
    folder,
    hard,
    link,
    of_folder,
    of_layers,
    special,
    tar,
    unpack,
)
from test_python_loading import ELF

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory import file_facts
from buildmatrix.facts.inventory.collect import collect, is_content_read
from buildmatrix.facts.trees import archive_layers
from buildmatrix.facts.trees.archive import BytesSource, DirectoryTree
from buildmatrix.facts.trees.base import RandomAccess, Unreadable
from buildmatrix.images import image, layer_facts
from buildmatrix.images.image import LayerReader
from buildmatrix.images.layer_facts import decompress
from buildmatrix.images.store.cache import Cache

if sys.version_info >= (3, 14):
    from compression.zstd import compress as zstandard
else:
    from backports.zstd import compress as zstandard

SITE = "usr/lib/python3.11/site-packages"
LOADS = b"import ctypes\nimport other\nctypes.CDLL('libx.so')\n"


def metadata(name: str, *files: str, digest: str = "") -> list[Entry]:
    record = "".join(f"{file},{digest},\n" for file in files)
    return [
        (f"{SITE}/{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n".encode()),
        (f"{SITE}/{name}-1.0.dist-info/RECORD", record.encode()),
        (f"{SITE}/{name}-1.0.dist-info/INSTALLER", b"uv"),
    ]


def digest_as_written(algorithm: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest())
    return f"{algorithm}={digest.decode().rstrip('=')}"


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        for name in names:
            out.writestr(name, ELF + bytes(3000))
    return buffer.getvalue()


def small_tar(*names: str) -> bytes:
    return tar([(name, ELF + bytes(3000)) for name in names])


RPM_DATABASE = Path(__file__).parents[1] / "facts/inventory/data/sle15.Packages.db.xz"
#: A base, two distributions, and a layer that takes back some of it.
LAYERS: tuple[Sequence[Entry], ...] = (
    [
        folder("usr"),
        ("usr/bin/python3.11", ELF),
        ("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n/opt/lib\n"),
        ("etc/ld.so.conf.d/x.conf", b"/usr/local/lib\n"),
        ("var/lib/dpkg/status", b"Package: libx\nVersion: 1\nStatus: install ok installed\n"),
        ("var/lib/dpkg/info/libx.list", b"/usr/lib/libx.so\n"),
        ("usr/lib/sysimage/rpm/Packages.db", lzma.decompress(RPM_DATABASE.read_bytes())),
        link("var/lib/rpm", "../../usr/lib/sysimage/rpm"),
        ("usr/lib/os-release", b'ID="sles"\nVERSION_ID="15.6"\n'),
        link("etc/os-release", "../usr/lib/os-release"),
        ("usr/lib/libx.so.1", ELF + b"one"),
        link("usr/lib/libx.so", "libx.so.1"),
        link("lib", "usr/lib"),
        ("opt/tool.jar", zipped("a/libinside.so", "b.class")),
        ("opt/gone/libgone.so", ELF),
    ],
    [
        *metadata("demo", "demo/__init__.py", "demo/_C.so", "shared.py"),
        (f"{SITE}/demo/__init__.py", LOADS),
        (f"{SITE}/demo/_C.so", ELF + b"two"),
        (f"{SITE}/extra.pth", b"/opt/more\n"),
        ("opt/more/m.py", b"import demo\n"),
        (f"{SITE}/shared.py", b"x = 1\n"),
        ("var/cache/p.deb.tar.gz", gzip.compress(small_tar("usr/lib/libdeb.so"), mtime=0)),
    ],
    [
        *metadata("other", "other/__init__.py", "shared.py"),
        (f"{SITE}/other/__init__.py", b"import demo._C\n"),
        ("opt/gone/.wh..wh..opq", b""),
        ("opt/gone/new", b"new"),
        ("usr/lib/.wh.libx.so.1", b""),
        hard("usr/lib/copy.so", f"{SITE}/demo/_C.so"),
        ("lib/late.so", ELF + b"late"),
    ],
)


@pytest.mark.parametrize(
    "squeeze", [bytes, gzip.compress, zstandard], ids=["plain", "gzip", "zstd"]
)
def test_an_image_is_what_its_unpacked_files_are(
    tmp_path: Path, squeeze: Callable[[bytes], bytes]
) -> None:
    unpack(tmp_path, *LAYERS)
    inventory = of_layers(*LAYERS, squeeze=squeeze)
    assert differences(inventory, of_folder(tmp_path)) == {}
    # The comparison would hold of nothing, too.
    assert [item.name for item in inventory.distributions] == ["demo", "other"]
    assert [item.path for item in inventory.containers] == [
        "opt/tool.jar",
        "var/cache/p.deb.tar.gz",
    ]
    assert inventory.library_folders == ("usr/local/lib", "opt/lib")
    assert {load.path for load in inventory.python_loads} == {f"{SITE}/demo/__init__.py"}
    assert [shared.path for shared in inventory.shared_paths] == [f"{SITE}/shared.py"]
    assert {item.kind for item in inventory.system_packages} == {"deb", "rpm"}
    assert inventory.operating_system == "sles 15.6"
    assert inventory.python_paths[0].folders == (SITE, "opt/more")
    assert inventory.unread == ()
    assert "usr/lib/late.so" in inventory.origins


EMPTY = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
RIGHT = {name: digest_as_written(name, b"x = 1\n") for name in ("sha256", "sha512")}


@pytest.mark.parametrize("digest", [*RIGHT.values(), "sha512=zz"])
def test_who_wrote_a_path_of_two_is_known_by_its_hash(tmp_path: Path, digest: str) -> None:
    layers: list[list[Entry]] = [
        [*metadata("one", "shared.py", digest=digest), (f"{SITE}/shared.py", b"x = 1\n")],
        [*metadata("two", "shared.py", digest=EMPTY)],
    ]
    unpack(tmp_path, *layers)
    inventory = of_layers(*layers)
    assert differences(inventory, of_folder(tmp_path)) == {}
    right = ("one==1.0",) if digest in RIGHT.values() else ()
    assert inventory.shared_paths[0].matches == right


# Names that say nothing of what a file is, and links to such


def test_what_a_link_leads_to_is_read_again_where_nobody_kept_it(tmp_path: Path) -> None:
    layers: list[list[Entry]] = [
        [
            ("usr/share/loader", b"/opt/one\ninclude /usr/share/more\n"),
            ("usr/share/more", b"/opt/two\n"),
            link("etc/ld.so.conf", "/usr/share/loader"),
        ],
        [("srv/data", b"none of it is read again")],
    ]
    blobs = Blobs(*map(tar, layers))
    inventory = LayerReader(Cache(None)).inventory(configuration(2), blobs.blobs, None)
    assert inventory.library_folders == ("opt/one", "opt/two")
    assert inventory.unread == ()
    # Once for itself, once for each file that only the one before names.
    assert blobs.opened == [3, 1]
    unpack(tmp_path, *layers[1:])
    (tmp_path / "usr/share").mkdir(parents=True)
    (tmp_path / "usr/share/loader").write_bytes(layers[0][0][1])
    (tmp_path / "usr/share/more").write_bytes(layers[0][1][1])
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").symlink_to("/usr/share/loader")
    assert differences(inventory, of_folder(tmp_path)) == {}


def test_a_file_is_what_its_name_in_the_image_says(tmp_path: Path) -> None:
    """Its bytes passed by under another one, which a whiteout took away."""
    layers: list[list[Entry]] = [
        [(f"{SITE}/a.txt", LOADS), ("srv/code", b"// x\n.version 7.0\n.target sm_90\n")],
        [
            hard(f"{SITE}/a.py", f"{SITE}/a.txt"),
            hard("srv/code.ptx", "srv/code"),
            (f"{SITE}/.wh.b", b""),
        ],
        [(f"{SITE}/.wh.a.txt", b""), ("srv/.wh.code", b"")],
    ]
    unpack(tmp_path, *layers)
    inventory = of_layers(*layers)
    assert differences(inventory, of_folder(tmp_path)) == {}
    assert [item.kind for item in inventory.artefacts] == ["ptx"]
    assert inventory.unread == ()


def test_farms_of_links_are_one_file_each(tmp_path: Path) -> None:
    farm = [hard(f"env{number}/lib/libx.so", "pkgs/x-1/lib/libx.so") for number in range(30)]
    layers: list[list[Entry]] = [[("pkgs/x-1/lib/libx.so", ELF)], farm]
    unpack(tmp_path, *layers)
    inventory = of_layers(*layers)
    assert differences(inventory, of_folder(tmp_path)) == {}
    assert len(inventory.binaries) == 1


def test_every_file_that_a_scan_reads_as_a_whole_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for those that a link leads to; see above."""
    unpack(tmp_path, *LAYERS)
    conda = {"name": "c", "version": "1", "files": ["lib/x"], "depends": []}
    more = {
        "conda-meta/c-1.json": json.dumps(conda),
        "pyvenv.cfg": "version = 3.11.2\n",
        "etc/ld.so.preload": "/lib/x.so",
        "etc/ld.so.cache": "damaged",
        "etc/ld-musl-x86_64.path": "/lib",
        "usr/lib/apk/db/installed": "P:x\nV:1\nF:usr\nR:x\n",
        "var/lib/dpkg/status.d/libc": "Package: libc\nVersion: 1\n",
        "var/lib/dpkg/status.d/libc.md5sums": "0  usr/lib/libc.so\n",
        "srv/old.egg-info": "Name: old\nVersion: 1\n",
        "srv/egg.egg-info/PKG-INFO": "Name: egg\nVersion: 1\n",
        "srv/egg.egg-info/requires.txt": "six\n",
        "srv/egg.egg-info/installed-files.txt": "PKG-INFO\n",
        "srv/node_modules/a/package.json": "{}",
        "srv/package-lock.json": "{}",
        "srv/x-1-py3.9.egg/EGG-INFO/PKG-INFO": "Name: x\nVersion: 1\n",
        f"{SITE}/demo-1.0.dist-info/direct_url.json": '{"url": "https://example.com/x"}',
        f"{SITE}/demo-1.0.dist-info/entry_points.txt": "[a]\nb = c\n",
        f"{SITE}/demo-1.0.dist-info/sboms/x/s.json": "{}",
    }
    for name, text in more.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    whole: set[str] = set()

    class Watched(DirectoryTree):
        def read_bytes(self, path: str, limit: int) -> bytes:
            whole.add(path)
            return super().read_bytes(path, limit)

    with Watched(tmp_path) as tree:
        collect(tree)
    assert {*more} - {f"{SITE}/x"} <= whole
    assert [path for path in whole if not is_content_read(path, 10)] == []


# Anything


FOLDERS = ["", "a/", "a/b/", f"{SITE}/", f"{SITE}/p/", "etc/", "usr/lib/"]
FILES = {
    "x.py": LOADS,
    "libx.so": ELF,
    "liby.so.1": ELF + b"y",
    "y.pth": b"/a/b\n/a\n",
    "ld.so.conf": b"/a\n",
    "z.jar": zipped("l/libz.so"),
    "m.pyc": LOADS,
    "t.ptx": b".target sm_80\n",
    "data": b"data",
    "e-1-py3.9.egg": zipped("EGG-INFO/PKG-INFO"),
    "node_modules/p/package.json": b'{"name": "p", "version": "1", "dependencies": {"@q/r": "1"}}',
    "node_modules/@q/r/package.json": b'{"name": "@q/r", "version": "2"}',
    "p-1.0.dist-info/METADATA": b"Name: p\nVersion: 1.0\n",
    "p-1.0.dist-info/RECORD": b"p/x.py,,\nlibx.so,,\nx.py,,\n",
}
paths = st.builds(str.__add__, st.sampled_from(FOLDERS), st.sampled_from(sorted(FILES)))
folders = st.sampled_from([name.rstrip("/") for name in FOLDERS if name])
entries = st.one_of(
    paths.map(lambda path: (path, next(v for k, v in FILES.items() if path.endswith(k)))),
    paths.map(lambda path: (path, ELF + b"other")),
    st.builds(hard, paths, paths),
    st.builds(
        link,
        st.builds(str.__add__, st.sampled_from(FOLDERS), st.sampled_from(["l1", "l2.so", "l3.py"])),
        st.sampled_from(["libx.so", "x.py", "b", "../usr/lib/libx.so", "l1", "/a/b", "/etc/data"]),
    ),
    folders.map(folder),
    st.builds(special, paths, st.just(tarfile.FIFOTYPE)),
    paths.map(lambda path: (f"{path.rpartition('/')[0]}/.wh.{path.rpartition('/')[2]}", b"")),
    folders.map(lambda path: (f"{path.rpartition('/')[0]}/.wh.{path.rpartition('/')[2]}", b"")),
    folders.map(lambda path: (f"{path}/.wh..wh..opq", b"")),
)
layer = st.lists(entries, max_size=12).map(
    lambda some: [
        (entry[0].lstrip("/"), entry[1]) if isinstance(entry, tuple) else entry for entry in some
    ]
)


@given(st.lists(layer, min_size=1, max_size=4))
@settings(max_examples=150)
def test_any_layers_are_what_their_unpacked_files_are(layers: list[list[Entry]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        unpack(Path(root), *layers)
        image, unpacked = of_layers(*layers), of_folder(Path(root))
        # A link to what is not there, and a name below a file, are told of: nothing unpacks them.
        told = [item for item in image.unread if "which is not a file of" not in item.why]
        told = [item for item in told if "its folder is a file" not in item.why]
        told = [item for item in told if "its own layer deletes it" not in item.why]
        image = replace(image, unread=tuple(told))
        assert differences(image, unpacked) == {}


# Containers: how much of one tree is opened shows when all layers are there


def test_the_limits_of_a_tree_count_for_all_layers_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Different names, so that what is packed has different sizes.
    archives = [gzip.compress(small_tar("x" * n + ".so"), mtime=0) for n in (1, 30, 90)]
    monkeypatch.setattr(file_facts, "MOST_STREAMED", len(archives[0]) + len(archives[1]) + 5)
    layers: list[list[Entry]] = [[(f"{2 - n}.tgz", data)] for n, data in enumerate(archives)][::-1]
    unpack(tmp_path, *layers)
    inventory = of_layers(*layers)
    assert differences(inventory, of_folder(tmp_path)) == {}
    assert [bool(item.closed) for item in inventory.containers].count(True) == 1


def test_what_one_layer_opens_ahead_has_a_limit_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layer_facts, "MOST_CONTAINERS", 1)
    inventory = of_layers([("a.jar", zipped("liba.so")), ("b.jar", zipped("libb.so"))])
    assert [bool(item.closed) for item in inventory.containers] == [False, True]


# What is hostile


@pytest.mark.parametrize("most", [6, 7])
def test_an_image_has_a_bound_for_the_entries_of_all_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Which layer passes it does not matter, nor that its layers are known."""
    for module in (archive_layers, image):
        monkeypatch.setattr(module, "MAX_ENTRIES", 8)
    layers: list[list[Entry]] = [[(f"{n}/{m}", b"") for m in range(4)] for n in range(2)]
    blobs = Blobs(*map(tar, layers))
    reader = LayerReader(Cache(tmp_path))
    assert reader.inventory(configuration(2), blobs.blobs, None).stats.files == 8
    for module in (archive_layers, image):
        monkeypatch.setattr(module, "MAX_ENTRIES", most)
    for known in (reader, LayerReader(Cache(tmp_path)), LayerReader(Cache(None))):
        with pytest.raises(Unreadable, match=f"an image of more than {most} entries is not read"):
            known.inventory(configuration(2), blobs.blobs, None)


def test_a_small_archive_of_many_names_is_cut_and_undecided() -> None:
    most = file_facts.MANY_FILES
    for count in (most, most + 2000):
        packed = gzip.compress(tar([("same.so", b"")] * count + [("libx.so", ELF)]), mtime=0)
        contents = file_facts.read_container(
            BytesSource(packed), "a.tgz", len(packed), "compressed"
        )
        assert len(packed) < file_facts.LARGE_CONTAINER
        inventory = of_layers([("a.tgz", packed)])
        if count == most:
            assert contents.closed is None and not inventory.unread
        else:
            assert contents.files == most + len(packed) // file_facts._BYTES_PER_FILE < count
            assert "of its files were read" in inventory.unread[0].why


def test_the_whiteout_of_the_root_hides_nothing_and_the_opaque_root_all() -> None:
    base: list[Entry] = [("a/libx.so", ELF), ("b/liby.so", ELF + b"y")]
    for name in (".wh.", "./.wh..", ".wh..", ".wh...", "a/.wh...", "/.wh./"):
        assert len(of_layers(base, [(name, b"")]).binaries) == 2, name
    assert of_layers(base, [(".wh..wh..opq", b"")]).binaries == ()
    assert of_layers(base, [("/.wh..wh..opq", b""), ("c.so", ELF)]).binaries[0].path == "c.so"


def test_a_name_that_leads_out_is_told_and_lands_nowhere() -> None:
    inventory = of_layers([("../../etc/libx.so", ELF), ("a/../../liby.so", ELF), ("ok.so", ELF)])
    assert [item.path for item in inventory.binaries] == ["ok.so"]
    assert [item.path for item in inventory.unread] == ["../../etc/libx.so", "a/../../liby.so"]


def test_links_lead_nowhere_but_into_the_image() -> None:
    inventory = of_layers(
        [link("out", "/../../.."), ("out/libx.so", ELF), hard("passwd.so", "../../etc/passwd")]
    )
    assert [item.path for item in inventory.binaries] == ["libx.so"]
    assert [item.path for item in inventory.unread] == ["passwd.so"]


def test_devices_are_no_files_and_hide_what_was_there() -> None:
    device = special("dev/libx.so", tarfile.CHRTYPE)
    assert of_layers([("dev/libx.so", ELF), device]).binaries == ()
    inventory = of_layers([special("pipe.so", tarfile.FIFOTYPE), ("ok.so", ELF)])
    assert [item.path for item in inventory.binaries] == ["ok.so"]
    assert inventory.unread == ()


@pytest.mark.parametrize("below", ["dev/x", "dev/x/libx.so"])
def test_a_device_over_a_file_is_undecided_as_rootless_engines_make_none(below: str) -> None:
    inventory = of_layers([(below, ELF)], [special("dev/x", tarfile.CHRTYPE)])
    assert [item.path for item in inventory.binaries] == [below]
    assert [item.path for item in inventory.unread] == ["dev/x"]
    assert of_layers([special("dev/x", tarfile.CHRTYPE)], [(below, ELF)]).unread == ()


def test_names_of_4000_bytes_and_names_that_are_no_text() -> None:
    long = "/".join(["d" * 190] * 21) + ".so"
    odd = "lib\udcff.so"
    inventory = of_layers([(long, ELF), (odd, ELF)], [(f".wh.{odd}", b"")])
    assert [item.path for item in inventory.binaries] == [long]
    deep = "d/" * (archive_layers.MAX_DEPTH + 1) + "x.so"
    inventory = of_layers([(deep, ELF)])
    assert inventory.binaries == () and "nested more than" in inventory.unread[0].why


def test_of_an_entry_that_comes_twice_the_last_counts() -> None:
    inventory = of_layers([("x.so", ELF), ("x.so", b"text"), ("y.so", b"text"), ("y.so", ELF)])
    assert [item.path for item in inventory.binaries] == ["y.so"]


def sparse(name: str) -> tarfile.TarInfo:
    """A sparse file of the PAX format 1.0 (GNU tar manual, "Sparse Formats")."""
    info = tarfile.TarInfo("GNUSparseFile.0/real")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": name,
        "GNU.sparse.realsize": "1000000",
    }
    return info


def test_a_sparse_file_is_undecided_and_never_clean() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        info, data = sparse("libcudart.so.12"), b"1\n0\n512\n".ljust(512, b"\0") + ELF.ljust(512)
        info.size = len(data)
        out.addfile(info, io.BytesIO(data))
    blobs = Blobs(buffer.getvalue())
    inventory = LayerReader(Cache(None)).inventory(configuration(1), blobs.blobs, None)
    assert [(item.path, item.why) for item in inventory.unread] == [
        ("libcudart.so.12", "a sparse file, which is not read")
    ]


def pax(**headers: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        info = tarfile.TarInfo("harmless.txt")
        info.pax_headers = headers
        info.size = len(ELF)
        out.addfile(info, io.BytesIO(ELF))
    return buffer.getvalue()


def test_the_name_of_a_pax_header_counts() -> None:
    blobs = Blobs(pax(path="usr/lib/libx.so"))
    inventory = LayerReader(Cache(None)).inventory(configuration(1), blobs.blobs, None)
    assert [item.path for item in inventory.binaries] == ["usr/lib/libx.so"]


@pytest.mark.parametrize("size", ["-1", "99999999999999999999999", "1e3", "0x10"])
def test_a_pax_header_that_lies_about_the_size_gives_no_clean_layer(size: str) -> None:
    blobs = Blobs(pax(size=size))
    try:
        inventory = LayerReader(Cache(None)).inventory(configuration(1), blobs.blobs, None)
    except Unreadable:
        return
    assert [item.path for item in inventory.binaries] == ["harmless.txt"]


def test_a_file_behind_a_lone_block_of_zeros_is_not_lost_in_silence() -> None:
    first, second = tar([("a.so", ELF)]), tar([("b.so", ELF)])
    cut = first[: 1024 + 512]  # one block of zeros
    blobs = Blobs(cut + second)
    with pytest.raises(Unreadable, match="end mark"):
        LayerReader(Cache(None)).inventory(configuration(1), blobs.blobs, None)


def test_a_bomb_ends_and_is_no_clean_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    from buildmatrix.facts.trees import archive

    monkeypatch.setattr(archive, "INFLATION_ALLOWANCE", 1 << 20)
    for squeeze in (gzip.compress, zstandard):
        with pytest.raises(Unreadable, match=r"layer 1 of 1 .*: a bomb"):
            of_layers([("zeros", bytes(30_000_000))], squeeze=squeeze)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.7, 0.999])
def test_a_layer_that_is_cut_short_is_refused(keep: float) -> None:
    data = gzip.compress(tar(LAYERS[1]), mtime=0)
    blobs = Blobs(data[: int(keep * len(data))])
    with pytest.raises(Unreadable):
        LayerReader(Cache(None)).inventory(configuration(1), blobs.blobs, None)


def test_a_failure_of_whoever_has_the_bytes_is_no_trouble_of_one_file() -> None:
    class Lost(Exception):
        pass

    data = tar([("libx.so", ELF + bytes(100_000)), ("liby.so", ELF)])

    def failing() -> object:
        yield data[:2000]
        raise Lost("the registry hung up")

    with pytest.raises(Lost):
        layer_facts.read_layer(failing(), len(data))


@pytest.mark.parametrize("keep", [700, 3000, 1 << 30])
def test_the_thread_that_inflates_ends_with_the_layer(keep: int) -> None:
    data = gzip.compress(
        tar([("noise", random.Random(1).randbytes(12_000_000)), ("libx.so", ELF)]), 1
    )[:keep]
    with suppress(Unreadable):
        layer_facts.read_layer(iter([data]), len(data))
    assert [thread.name for thread in threading.enumerate() if thread.name == "layer"] == []


def test_a_full_disk_is_no_fact_of_the_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: RandomAccess, path: str, size: int) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(layer_facts, "inspect_source", full)
    blobs = Blobs(tar([("libx.so", ELF)]))
    inventory = LayerReader(Cache(tmp_path)).inventory(configuration(1), blobs.blobs, None)
    assert [item.why for item in inventory.unread] == ["no space left on device"]
    monkeypatch.undo()
    inventory = LayerReader(Cache(tmp_path)).inventory(configuration(1), blobs.blobs, None)
    assert (inventory.unread, len(inventory.binaries), blobs.opened) == ((), 1, [2])


@pytest.mark.parametrize(
    "text",
    ['{"url": "https://user:hunter2@example.com/x.whl?token=hunter2"}', '{"url": 5, "hunter2": 1}'],
)
def test_no_password_of_an_image_gets_into_the_cache(tmp_path: Path, text: str) -> None:
    layer = [*metadata("demo", "demo.py"), ("demo.py", LOADS)]
    layer.append((f"{SITE}/demo-1.0.dist-info/direct_url.json", text.encode()))
    unpack(tmp_path / "root", layer)
    blobs = Blobs(tar(layer))
    reader = LayerReader(Cache(tmp_path / "cache"))
    inventory = reader.inventory(configuration(1), blobs.blobs, None)
    assert differences(inventory, of_folder(tmp_path / "root")) == {}
    layers = [reader.known(blobs.blobs[0].digest)]
    kept = b"".join(decompress(block) for one in layers if one for block in one.blocks)
    assert b"hunter2" not in kept and LOADS in kept


# What is known


def test_only_a_layer_that_changed_is_read_again(tmp_path: Path) -> None:
    data = [tar(layer) for layer in LAYERS]
    first = Blobs(*data)
    before = LayerReader(Cache(tmp_path)).inventory(configuration(3), first.blobs, None)
    changed = tar([*LAYERS[2], ("srv/new.so", ELF)])
    second = Blobs(data[0], data[1], changed)
    reader = LayerReader(Cache(tmp_path))
    after = reader.inventory(configuration(3), second.blobs, None)
    assert (first.opened, second.opened) == ([1, 1, 1], [0, 0, 1])
    assert reader.bytes_read == after.stats.bytes_read == len(changed)
    assert 0 < after.stats.cached < before.stats.files == after.stats.files - 1
    assert before.stats.cached == 0


def test_a_layer_is_known_however_it_is_compressed(tmp_path: Path) -> None:
    plain = [tar(layer) for layer in LAYERS]
    LayerReader(Cache(tmp_path)).inventory(configuration(3), Blobs(*plain).blobs, None)
    packed = Blobs(*(gzip.compress(data, mtime=0) for data in plain))
    reader = LayerReader(Cache(tmp_path))
    # A blob has to be read once to know what it inflates to.
    reader.inventory(configuration(3), packed.blobs, None)
    assert packed.opened == [1, 1, 1]
    LayerReader(Cache(tmp_path)).inventory(configuration(3), packed.blobs, None)
    assert packed.opened == [1, 1, 1]


def test_a_configuration_for_other_layers_is_refused() -> None:
    data = tar(LAYERS[0])
    blobs = Blobs(data)
    with pytest.raises(Unreadable, match="another one than the configuration says"):
        LayerReader(Cache(None)).inventory(
            configuration(1, "sha256:" + 64 * "0"), blobs.blobs, None
        )


def test_bytes_of_another_digest_are_never_kept_under_it(tmp_path: Path) -> None:
    good, bad = Blobs(tar(LAYERS[0])).blobs[0], Blobs(tar(LAYERS[1])).blobs[0]
    lie = replace(bad, digest=good.digest)
    with pytest.raises(Unreadable, match="its bytes have the digest"):
        LayerReader(Cache(tmp_path)).inventory(configuration(1), [lie], None)
    assert LayerReader(Cache(tmp_path)).known(good.digest) is None
    with pytest.raises(Unreadable, match="were announced"):
        LayerReader(Cache(tmp_path)).inventory(
            configuration(1), [replace(good, size=good.size - 512)], None
        )


@pytest.mark.parametrize(("path", "whiteout"), [("x.so", ".wh.x.so"), ("a/b/x.so", "a/.wh.b")])
def test_a_whiteout_behind_a_file_of_its_own_layer_is_undecided(path: str, whiteout: str) -> None:
    # podman (vfs) deletes the file, umoci keeps it, podman (overlay) refuses the layer.
    inventory = of_layers([(path, ELF)], [(path, ELF), (whiteout, b"")])
    assert [item.path for item in inventory.binaries] == [path]
    assert len(inventory.unread) == 1 and path.startswith(inventory.unread[0].path)
    assert of_layers([(path, ELF)], [(whiteout, b""), (path, ELF)]).unread == ()
