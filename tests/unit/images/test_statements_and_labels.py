"""Statements of Python files, and labels of images, are facts of an inventory."""

from __future__ import annotations

from pathlib import Path

from layer_archives import Blobs, configuration, link, of_folder, of_layers, tar, unpack
from test_merged_layers import SITE, metadata

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Statements, encode
from buildmatrix.images.image import LayerReader
from buildmatrix.images.store import decode
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import FactCache
from buildmatrix.sources.wheels_on_index import merge

FILES = [
    *metadata("demo", "demo/version.py", "demo/other.py", "demo/linked_version.py"),
    (f"{SITE}/demo/version.py", b"cuda = '12.4'\narchs = ['sm_80', 'sm_90']\nhip = None\n"),
    (f"{SITE}/demo/other.py", b"cuda = '11.8'\n"),
    (f"{SITE}/nobodys_version.py", b"cuda = '10.2'\n"),
    link(f"{SITE}/demo/linked_version.py", "version.py"),
]
STATED = Statements(
    f"{SITE}/demo/version.py",
    {"cuda": ("12.4",), "archs": ("sm_80", "sm_90")},
    "demo==1.0",
)


def test_a_layer_and_a_folder_say_the_same(tmp_path: Path) -> None:
    image = of_layers(FILES)
    assert image.statements == (STATED,)
    unpack(tmp_path, FILES)
    assert of_folder(tmp_path).statements == image.statements
    assert decode(encode(image)) == image
    assert merge([image]).statements == image.statements


def test_a_later_layer_says_what_counts() -> None:
    later = [(f"{SITE}/demo/version.py", b"cuda = '13.0'\n")]
    assert of_layers(FILES, later).statements == (replace(STATED, values={"cuda": ("13.0",)}),)


def test_labels_are_those_of_the_configuration(tmp_path: Path) -> None:
    cache, data = Cache(tmp_path), tar(FILES)

    def labels(**configured: str) -> dict[str, str]:
        reader = LayerReader(cache)
        its = replace(configuration(1), labels=configured)
        return dict(reader.inventory(its, Blobs(data).blobs, FactCache(cache)).labels)

    assert labels(b="2", a="1") == {"a": "1", "b": "2"}
    # The layers are the same, and the image is another one.
    assert labels(a="3") == {"a": "3"}
