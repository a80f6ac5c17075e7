"""What a daemon saves becomes a layout that a registry takes, or is refused in one sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from image_registry import digest_of
from layer_archives import tar

from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines.docker_publishing import lay_down
from buildmatrix.images.documents import LAYER, LAYER_GZIP, MANIFEST

CONFIGURATION = json.dumps({"architecture": "amd64", "os": "linux"}).encode()


def descriptor(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}


def image(layer: bytes, media_type: str, *, names: int = 1, salt: str = "") -> dict[str, bytes]:
    """The files of an archive with one image of one layer, by their names."""
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", CONFIGURATION),
            "layers": [descriptor(media_type, layer)],
            "annotations": {"salt": salt},
        }
    ).encode()
    index = {"schemaVersion": 2, "manifests": [descriptor(MANIFEST, manifest)] * names}
    blobs = (layer, CONFIGURATION, manifest)
    files = {f"blobs/sha256/{digest_of(data)[7:]}": data for data in blobs}
    return {**files, "index.json": json.dumps(index).encode(), "manifest.json": b"[]"}


def archive(files: dict[str, bytes]) -> bytes:
    return tar(list(files.items()))


def chunks(data: bytes) -> list[bytes]:
    return [data[at : at + 1000] for at in range(0, len(data), 1000)]


def test_an_image_of_containerds_store_stays_as_it_is_whatever_names_it_has(tmp_path: Path) -> None:
    files = image(gzip.compress(b"layer"), LAYER_GZIP, names=3)
    layout = lay_down(chunks(archive(files)), tmp_path)
    (only,) = layout.images()
    assert f"blobs/sha256/{only.digest[7:]}" in files
    assert layout.manifest(only).config.digest == digest_of(CONFIGURATION)


def test_layers_of_the_older_store_are_compressed_the_same_each_time(tmp_path: Path) -> None:
    layer = bytes(range(256)) * 20_000
    files = archive(image(layer, LAYER))
    first, second = (lay_down(chunks(files), tmp_path / name) for name in ("a", "b"))
    (only,) = first.images()
    assert second.images() == (only,)
    manifest = first.manifest(only)
    (packed,) = manifest.layers
    assert (packed.media_type, manifest.config.digest) == (LAYER_GZIP, digest_of(CONFIGURATION))
    with first.open(packed) as file:
        assert gzip.decompress(file.read()) == layer
    assert packed.size < len(layer)


def test_entries_that_lead_out_of_the_archive_are_left_out(tmp_path: Path) -> None:
    files = image(gzip.compress(b"layer"), LAYER_GZIP)
    files |= {"../outside": b"1", "/outside": b"1", "blobs/sha256/../../outside": b"1"}
    lay_down(chunks(archive(files)), tmp_path / "layout")
    assert [path.name for path in tmp_path.iterdir()] == ["layout"]
    assert not list(tmp_path.rglob("outside"))


def test_other_bytes_than_the_name_says_are_refused(tmp_path: Path) -> None:
    files = image(gzip.compress(b"layer"), LAYER_GZIP)
    name = next(iter(files))
    files[name] = files[name][:-1] + b"?"
    with pytest.raises(UndecidedError, match="digest"):
        lay_down(chunks(archive(files)), tmp_path)


@pytest.mark.parametrize("kept", [0.3, 0.8])
def test_an_archive_that_ends_early_is_refused(tmp_path: Path, kept: float) -> None:
    whole = archive(image(bytes(50_000), LAYER))
    with pytest.raises(UndecidedError, match="saved an image that cannot be read"):
        lay_down(chunks(whole[: int(len(whole) * kept)]), tmp_path)


def test_a_blob_that_is_missing_is_named(tmp_path: Path) -> None:
    files = image(bytes(50_000), LAYER)
    layer = next(iter(files))
    del files[layer]
    with pytest.raises(UndecidedError, match=f"no blob sha256:{layer[13:]}"):
        lay_down(chunks(archive(files)), tmp_path)


def test_docker_24_writes_no_layout(tmp_path: Path) -> None:
    files = {"manifest.json": b"[]", "repositories": b"{}"}
    with pytest.raises(UndecidedError, match="Docker 25 or newer"):
        lay_down(chunks(archive(files)), tmp_path)


def test_two_images_are_not_one(tmp_path: Path) -> None:
    one, two = (image(gzip.compress(b"layer"), LAYER_GZIP, salt=salt) for salt in "ab")
    manifests = [json.loads(files["index.json"])["manifests"][0] for files in (one, two)]
    both = {"schemaVersion": 2, "manifests": manifests}
    files = {**one, **two, "index.json": json.dumps(both).encode()}
    with pytest.raises(UndecidedError, match="saved 2 images in place of one"):
        lay_down(chunks(archive(files)), tmp_path)
