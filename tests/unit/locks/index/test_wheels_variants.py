"""Wheels that are variants, by their names and by their own metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from index import IndexServer
from test_wheels import contents, locked, make

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.parsing import split_variant
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.model import Depth
from buildmatrix.locks.index.wheels import WheelReader

NAME = "alpha-1.0-py3-none-manylinux_2_28_x86_64{}.whl"


def variant(folder: Path, name: str, own: str | None) -> Path:
    files = contents()
    if own is not None:
        metadata = {
            "default-priorities": {"namespace": ["x86_64"]},
            "variants": {own: {"x86_64": {"level": ["v3"]}}},
        }
        files["alpha-1.0.dist-info/variant.json"] = json.dumps(metadata).encode()
    return make(folder, NAME.format(name), files)


@pytest.mark.parametrize("depth", ["listing", "heads", "whole"])
def test_the_variant_is_known_at_every_depth(packages: Path, client: Client, depth: Depth) -> None:
    path = variant(packages, "-x86_64_v3", "x86_64_v3")
    with IndexServer(packages) as server:
        facts = WheelReader(client).read(locked(path, server.file_url(path.name)), depth)
    (item,) = facts.inventory.distributions
    assert item.variant is not None
    assert (item.variant.label, item.variant.properties) == (
        "x86_64_v3",
        ("x86_64 :: level :: v3",),
    )


@pytest.mark.parametrize(
    ("own", "why"),
    [("other", "and other by its own metadata"), (None, "and no variant by its own")],
)
def test_a_name_that_says_another_variant_is_refused(
    packages: Path, own: str | None, why: str
) -> None:
    path = variant(packages, "-x86_64_v3", own)
    with pytest.raises(UndecidedError, match=why):
        WheelReader(None).read(locked(path), "heads")


def test_a_name_without_a_label_says_nothing_of_variants(packages: Path) -> None:
    path = variant(packages, "", "x86_64_v3")
    assert WheelReader(None).read(locked(path), "heads").inventory.distributions[0].variant


@pytest.mark.parametrize(
    ("filename", "label"),
    [
        ("numpy-2.3.2-cp313-cp313t-musllinux_1_2_x86_64.whl", None),
        ("numpy-2.3.2-1-cp313-cp313t-musllinux_1_2_x86_64.whl", None),
        ("numpy-2.3.2-cp313-cp313t-musllinux_1_2_x86_64-x86_64_v3.whl", "x86_64_v3"),
        ("numpy-2.3.2-1-cp313-cp313t-musllinux_1_2_x86_64-null.whl", "null"),
        ("numpy-2.3.2-cp313-cp313t-any-Big.whl", None),
        ("numpy-2.3.2-1-2-cp313-cp313t-any-x.whl", None),
        ("x.whl", None),
        ("", None),
    ],
)
def test_the_label_in_the_name_of_a_wheel(filename: str, label: str | None) -> None:
    plain, found = split_variant(filename)
    assert found == label
    assert plain == (filename if label is None else filename.replace(f"-{label}.whl", ".whl"))
