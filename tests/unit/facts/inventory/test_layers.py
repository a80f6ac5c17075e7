"""Layers of saved images: who brought a file, and what ships without being seen."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from test_python_loading import ELF

from buildmatrix.base.errors import Interrupted
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.trees import archive
from buildmatrix.facts.trees.archive_layers import LayeredTree
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.images.image import LayerReader, read_export
from buildmatrix.images.layer_facts import read_layer
from buildmatrix.images.merging import add_layers, merge_layers
from buildmatrix.images.saved_image import Configuration, SavedImage, format_instruction
from buildmatrix.images.store.cache import Cache

if sys.version_info >= (3, 14):
    from compression.zstd import compress as zstandard
else:
    from backports.zstd import compress as zstandard

SITE = "usr/lib/python3.11/site-packages"
BIG = 200_000
#: Name and size or bytes of a file, or the target of a hard link.
Layer = Sequence[tuple[str, int | str | bytes]]

HISTORY = [
    {"created_by": "/bin/sh -c #(nop) ADD file:1 in / "},
    {"created_by": '/bin/sh -c #(nop)  CMD ["bash"]', "empty_layer": True},
    {"created_by": "RUN /bin/sh -c pip install torch # buildkit", "comment": "buildkit"},
    {"created_by": "ENV A=b", "empty_layer": True},
    {"created_by": "RUN /bin/sh -c pip uninstall -y torch # buildkit"},
]


def packed(layer: Layer) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, what in layer:
            info = tarfile.TarInfo(name)
            if isinstance(what, str):
                info.type, info.linkname = tarfile.LNKTYPE, what
                out.addfile(info)
            else:
                data = bytes(what)
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def oci(
    layers: Sequence[bytes], history: Sequence[dict] = (), squeeze: Callable[[bytes], bytes] = bytes
) -> bytes:
    """An OCI archive as `docker save` writes it: blobs by digest, the documents last."""
    config = {
        "config": {"Env": ["A=b"]},
        "rootfs": {"diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
        "history": list(history),
    }
    blobs: dict[str, bytes] = {}

    def blob(data: bytes) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": "text/plain", "digest": f"sha256:{digest}", "size": len(data)}

    manifest = {
        "config": blob(json.dumps(config).encode()),
        "layers": [blob(squeeze(layer)) for layer in layers],
    }
    index = {"manifests": [blob(json.dumps(manifest).encode())]}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, data in [*sorted(blobs.items()), ("index.json", json.dumps(index).encode())]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def pieces(data: bytes, size: int = 777) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def layers_of(chunks: Iterator[bytes]) -> tuple[LayeredTree, Configuration]:
    reader = LayerReader(Cache(None), names_only=True)
    configuration, blobs = read_export(lambda: nullcontext(chunks), reader)
    return merge_layers(reader.layers(blobs)), configuration


def streamed(archive: bytes) -> Inventory:
    tree, configuration = layers_of(pieces(archive))
    return add_layers(Inventory(), tree, configuration.digests, configuration.instructions)


def saved(tmp_path: Path, archive: bytes) -> Inventory:
    path = tmp_path / "image.tar"
    path.write_bytes(archive)
    with SavedImage(path) as image:
        tree, known = image.tree(), image.configuration
        return add_layers(collect(tree), tree, known.digests, known.instructions)


UNINSTALLED = (
    packed([("etc/os-release", 100), (f"{SITE}/pip/__init__.py", 10)]),
    packed(
        [
            (f"{SITE}/nvidia/cublas/lib/libcublas.so.12", BIG),
            (f"{SITE}/nvidia/cublas/__init__.py", 0),
            (f"{SITE}/nvidia_cublas_cu12-12.8.3.dist-info/RECORD", 70),
        ]
    ),
    packed(
        [
            (f"{SITE}/.wh.nvidia", 0),
            (f"{SITE}/.wh.nvidia_cublas_cu12-12.8.3.dist-info", 0),
            ("etc/os-release", 120),
        ]
    ),
)


@pytest.mark.parametrize(
    "squeeze", [bytes, gzip.compress, zstandard], ids=["plain", "gzip", "zstd"]
)
def test_bytes_that_a_later_layer_deleted_are_told_with_both_layers(
    tmp_path: Path, squeeze: Callable[[bytes], bytes]
) -> None:
    archive = oci(UNINSTALLED, HISTORY, squeeze)
    for inventory in (saved(tmp_path, archive), streamed(archive)):
        assert [one.instruction for one in inventory.layers] == [
            "ADD file:1 in /",
            "RUN pip install torch",
            "RUN pip uninstall -y torch",
        ]
        assert [(one.size, one.hidden) for one in inventory.layers] == [
            (110, 100),
            (BIG + 70, BIG + 70),
            (120, 0),
        ]
        first, metadata = inventory.buried
        assert (first.path, first.size, first.files) == (f"{SITE}/nvidia", BIG, 2)
        assert (first.layer, first.by, first.replaced) == (1, 2, False)
        assert first.names == ("libcublas.so.12",)
        assert metadata.path == f"{SITE}/nvidia_cublas_cu12-12.8.3.dist-info"
        digest = hashlib.sha256(UNINSTALLED[1]).hexdigest()
        assert inventory.layers[1].digest == f"sha256:{digest}"


def test_an_opaque_folder_deletes_what_was_in_it() -> None:
    inventory = streamed(
        oci(
            [
                packed([("opt/sdk/lib/libx.so", BIG)]),
                packed([("opt/sdk/.wh..wh..opq", 0), ("opt/sdk/new", 5)]),
            ]
        )
    )
    assert [one.hidden for one in inventory.layers] == [BIG, 0]
    assert inventory.buried[0].path == "opt/sdk/lib"
    assert [one.instruction for one in inventory.layers] == ["", ""]


def test_a_file_that_was_written_again_ships_twice() -> None:
    layers = [packed([("srv/model.bin", BIG)]), packed([("srv/model.bin", BIG)])]
    (one,) = streamed(oci(layers)).buried
    assert (one.replaced, one.size, one.layer, one.by) == (True, BIG, 0, 1)


def test_a_file_is_hidden_when_its_last_name_is_gone() -> None:
    two = packed([("a", BIG), ("b", "a")])
    one_gone = streamed(oci([two, packed([(".wh.a", 0)])]))
    assert [one.hidden for one in one_gone.layers] == [0, 0]
    both_gone = streamed(oci([two, packed([(".wh.a", 0)]), packed([(".wh.b", 0)])]))
    assert [one.hidden for one in both_gone.layers] == [BIG, 0, 0]
    assert both_gone.buried[0].by == 2


def test_a_whiteout_buries_nothing_of_its_own_layer() -> None:
    layers = [packed([("etc/x", 1)]), packed([("tmp/big", BIG), (".wh.tmp", 0), ("y", 2)])]
    # A whiteout hides what lies below its layer; the layer's own file stays.
    inventory = streamed(oci(layers))
    assert [one.hidden for one in inventory.layers] == [0, 0]
    assert inventory.buried == ()


def test_a_name_that_one_layer_has_twice_is_no_later_layers_doing() -> None:
    inventory = streamed(oci([packed([("srv/x", BIG), ("srv/x", 7)])]))
    assert [one.hidden for one in inventory.layers] == [0]


def test_each_binary_and_distribution_knows_its_layer(tmp_path: Path) -> None:
    base = packed([("usr/lib/libc.so.6", ELF)])
    extension, metadata = f"{SITE}/demo/_C.abi3.so", f"{SITE}/demo-1.0.dist-info"
    loads = f"{SITE}/demo/loads.py"
    code = b"import ctypes\nctypes.CDLL('libx.so')\n"
    above = packed([(extension, ELF), (f"{metadata}/METADATA", 10), (loads, code)])
    inventory = saved(tmp_path, oci([base, above]))
    assert inventory.origins == {"usr/lib/libc.so.6": 0, extension: 1, metadata: 1, loads: 1}


def test_an_export_that_is_cut_short_is_never_taken_for_a_whole_one() -> None:
    archive = oci(UNINSTALLED, HISTORY)
    for keep in range(0, len(archive) - 10_240, 4096):
        with pytest.raises(Unreadable):
            layers_of(pieces(archive[:keep]))


def test_an_export_without_one_of_its_layers_is_refused() -> None:
    archive = io.BytesIO(oci(UNINSTALLED))
    lost = f"blobs/sha256/{hashlib.sha256(UNINSTALLED[1]).hexdigest()}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=archive) as old, tarfile.open(fileobj=buffer, mode="w") as new:
        for member in old.getmembers():
            if member.name != lost:
                new.addfile(member, old.extractfile(member))
    with pytest.raises(Unreadable, match="is missing from it"):
        layers_of(pieces(buffer.getvalue()))


def test_a_bomb_in_a_layer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "INFLATION_ALLOWANCE", 1000)
    bomb = packed([("zeros", 3_000_000)])
    with pytest.raises(Unreadable, match="bomb"):
        layers_of(pieces(oci([bomb], squeeze=gzip.compress)))


def twice(layer: bytes) -> bytes:
    """As parallel compressors write it: several members, here with zeros between and behind."""
    half = len(layer) // 2
    padding = bytes(200_000)
    return gzip.compress(layer[:half]) + padding + gzip.compress(layer[half:]) + padding


def test_a_layer_may_be_compressed_in_several_parts() -> None:
    whole = streamed(oci(UNINSTALLED, HISTORY, gzip.compress))
    assert streamed(oci(UNINSTALLED, HISTORY, twice)) == whole


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:-9],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-8] + bytes(4) + data[-4:],
        lambda data: data[:-4] + bytes([data[-4] ^ 1]) + data[-3:],
        lambda data: data + b"no gzip",
    ],
    ids=["no last byte", "no trailer", "half", "another CRC", "another size", "something behind"],
)
def test_a_damaged_layer_is_never_taken_for_a_whole_one(damage: Callable[[bytes], bytes]) -> None:
    archive = oci(UNINSTALLED, HISTORY, lambda layer: damage(gzip.compress(layer)))
    with pytest.raises(Unreadable, match="cannot be read"):
        layers_of(pieces(archive))


@pytest.mark.parametrize(
    "squeeze", [bytes, gzip.compress, zstandard], ids=["plain", "gzip", "zstd"]
)
def test_a_user_who_stops_the_reading_is_no_damaged_layer(
    squeeze: Callable[[bytes], bytes],
) -> None:
    layer = packed([("noise", random.Random(1).randbytes(BIG))])
    archive = oci([layer], squeeze=squeeze)

    def stopped() -> Iterator[bytes]:
        yield archive[: len(archive) // 2]
        raise Interrupted("interrupted")

    with pytest.raises(Interrupted):
        layers_of(stopped())


def test_names_in_a_layer_cost_little_memory_until_their_place_is_known() -> None:
    layer = packed([(f"usr/share/doc/package-{number}/copyright", 0) for number in range(2000)])
    facts = read_layer(pieces(layer), len(layer), names_only=True)
    assert sum(map(len, facts.entries)) < 20 * 2000
    assert len(list(facts.unpack())) == facts.count == 2000


@pytest.mark.parametrize(
    ("created_by", "shown"),
    [
        ("/bin/sh -c #(nop) COPY dir:1 in /app ", "COPY dir:1 in /app"),
        (
            "/bin/sh -c apt-get update &&     apt-get install x",
            "RUN apt-get update && apt-get install x",
        ),
        ("RUN /bin/sh -c make # buildkit", "RUN make"),
        ("RUN |1 A=b /bin/sh -c make # buildkit", "RUN |1 A=b /bin/sh -c make"),
        ("COPY . /app # buildkit", "COPY . /app"),
        ("crane append", "crane append"),
        ("RUN " + "x" * 1000, "RUN " + "x" * 393 + "..."),
    ],
)
def test_an_instruction_reads_as_in_a_dockerfile(created_by: str, shown: str) -> None:
    assert format_instruction(created_by) == shown
