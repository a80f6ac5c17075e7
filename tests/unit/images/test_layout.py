from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.documents import (
    CONFIGURATION,
    LAYER,
    MANIFEST,
    Descriptor,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
)
from buildmatrix.images.layers import iter_archive
from buildmatrix.images.layout import REF_NAME, OciLayout, verify_chunks


def image_in(layout: OciLayout, content: bytes = b"layer") -> Descriptor:
    layer = layout.put(content, LAYER)
    configuration = ImageConfiguration(
        architecture="amd64", os="linux", rootfs=RootFileSystem(diff_ids=(layer.digest,))
    )
    config = layout.put(encode(configuration), CONFIGURATION)
    manifest = Manifest(schema_version=2, media_type=MANIFEST, config=config, layers=(layer,))
    return layout.put(encode(manifest), MANIFEST)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_image_is_named_when_all_of_it_is_there(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    image = image_in(layout)
    assert layout.images() == () and not (tmp_path / "index.json").exists()
    layout.publish(image, ["one", "two"])
    assert [entry.annotations[REF_NAME] for entry in layout.images()] == ["one", "two"]
    assert json.loads((tmp_path / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}


def test_a_name_moves_from_one_image_to_the_next(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    first, second = image_in(layout), image_in(layout, b"other")
    layout.publish(first, ["latest", "1"])
    layout.publish(second, ["latest"])
    assert {entry.annotations[REF_NAME]: entry.digest for entry in layout.images()} == {
        "latest": second.digest,
        "1": first.digest,
    }
    layout.publish(first)
    assert layout.images() == (first,)


def test_a_blob_that_is_not_finished_has_no_name(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    with pytest.raises(KeyboardInterrupt), layout.writer() as blob:
        blob.write(b"half")
        raise KeyboardInterrupt
    assert files(tmp_path) == set()


def test_bytes_of_another_digest_are_not_taken(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    digest = f"sha256:{hashlib.sha256(b'right').hexdigest()}"
    descriptor = Descriptor(media_type=LAYER, digest=digest, size=5)
    for chunks, why in (
        ([b"wro", b"ng"], "is damaged"),
        ([b"righ"], "has 4 bytes instead of 5"),
        ([b"right", b"!"] * 1000, "more than 5"),
    ):
        with pytest.raises(UndecidedError) as error:
            layout.take(descriptor, chunks)
        assert why in error.value.message
    assert files(tmp_path) == set()
    layout.take(descriptor, [b"ri", b"ght"])
    assert layout.document(descriptor) == b"right"


def test_a_damaged_blob_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    blob = layout.put(b"right", LAYER)
    layout.path(blob.digest).write_bytes(b"wrong")
    with pytest.raises(UndecidedError, match="is damaged"):
        layout.document(blob)
    layout.path(blob.digest).write_bytes(b"cut")
    assert not layout.has(blob)
    with pytest.raises(UndecidedError, match="has 3 bytes instead of 5"):
        layout.document(blob)
    layout.path(blob.digest).unlink()
    with pytest.raises(UndecidedError, match="has no blob"):
        layout.document(blob)


@pytest.mark.parametrize(
    "digest", ["sha256:../../x", "sha256:ABC", "md5:1", "", "sha256:" + "0" * 63]
)
def test_no_path_is_made_of_what_is_no_digest(tmp_path: Path, digest: str) -> None:
    with pytest.raises(UndecidedError, match="not a digest"):
        OciLayout(tmp_path).path(digest)


def test_an_image_comes_over_with_all_of_its_blobs(tmp_path: Path) -> None:
    source, target = OciLayout(tmp_path / "a"), OciLayout(tmp_path / "b")
    image = image_in(source)
    target.adopt(source, image)
    target.publish(image, ["x"])
    assert {name for name in files(target.folder) if "blobs" in name} == files(source.folder)
    source.path(image.digest).unlink()
    with pytest.raises(UndecidedError, match="has no blob"):
        OciLayout(tmp_path / "c").adopt(source, image)


def test_what_nobody_used_for_long_makes_room(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    old, older, new = (layout.put(bytes([n]) * 100, LAYER) for n in range(3))
    now = time.time()
    for blob, days in ((old, 2), (older, 3)):
        os.utime(layout.path(blob.digest), (now - days * 86400,) * 2)
    assert layout.prune(1000, 86400 * 10) == 0
    assert layout.prune(250, 86400 * 10) == 100
    assert [layout.path(blob.digest).exists() for blob in (old, older, new)] == [True, False, True]
    assert layout.has(old)  # which is a use
    assert layout.prune(0, 0) == 0


def test_an_archive_of_an_image_is_the_same_every_time(tmp_path: Path) -> None:
    names = ["registry.example.com/acme/app:1", "app:latest"]
    archives = []
    for number in range(2):
        layout = OciLayout(tmp_path / str(number))
        with (tmp_path / f"{number}.tar").open("wb") as file:
            file.writelines(iter_archive(layout, image_in(layout), names))
        archives.append((tmp_path / f"{number}.tar").read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(tmp_path / "0.tar") as tar:
        members = tar.getnames()
        document = tar.extractfile("manifest.json")
        assert document is not None
        (docker,) = json.load(document)
    assert docker["RepoTags"] == names
    assert {docker["Config"], *docker["Layers"]} <= set(members)
    assert {"oci-layout", "index.json"} <= set(members)


def test_a_damaged_blob_gets_into_no_archive(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    image = image_in(layout)
    layer = layout.manifest(image).layers[0]
    layout.path(layer.digest).write_bytes(b"lAyer")
    with pytest.raises(UndecidedError, match="is damaged"), (tmp_path / "x.tar").open("wb") as file:
        file.writelines(iter_archive(layout, image, []))


def test_several_runs_name_images_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from test_layout import *\n"
        "layout = OciLayout(Path(sys.argv[1]))\n"
        "for n in range(20):\n"
        "    image = image_in(layout, f'{sys.argv[3]} {n}'.encode())\n"
        "    layout.publish(image, [f'{sys.argv[3]}-{n}'])\n"
    )
    folder = Path(__file__).parent
    runs = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path, folder, name]) for name in "abc"
    ]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert len(OciLayout(tmp_path).images()) == 60


def test_an_index_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = OciLayout(tmp_path)
    layout.publish(image_in(layout), ["1"])
    second = image_in(layout, b"other")
    before, index = files(tmp_path), (tmp_path / "index.json").read_bytes()

    def full(descriptor: int) -> None:
        os.ftruncate(descriptor, 10)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr("buildmatrix.images.layout.sync_folder", lambda folder: None)
        patch.setattr(os, "fsync", full)
        layout.publish(second, ["1"])
    assert files(tmp_path) == before
    assert (tmp_path / "index.json").read_bytes() == index


def test_what_is_checked_comes_as_it_is() -> None:
    descriptor = Descriptor(
        media_type=LAYER, digest=f"sha512:{hashlib.sha512(b'ab').hexdigest()}", size=2
    )
    assert list(verify_chunks(iter([b"a", b"b"]), descriptor, "x")) == [b"a", b"b"]
