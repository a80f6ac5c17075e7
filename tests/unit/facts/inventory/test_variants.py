"""Metadata of wheel variants: `variant.json`, and the index's `*-variants.json`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from buildmatrix.facts.inventory.collect import collect, is_content_read
from buildmatrix.facts.inventory.model import Inventory, Variant, encode
from buildmatrix.facts.inventory.variants import LARGEST, read_variant, read_variants
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.images.store import decode
from buildmatrix.locks.index.parts import is_metadata

SCHEMA = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
PATH = "demo-1.dist-info/variant.json"
#: The example of PEP 825.
EXAMPLE: dict[str, Any] = {
    "$schema": SCHEMA,
    "default-priorities": {"namespace": ["x86_64", "aarch64", "blas_lapack"]},
    "variants": {
        "x86_64_v3_openblas": {
            "blas_lapack": {"library": ["openblas"]},
            "x86_64": {"level": ["v3"]},
        }
    },
}


def with_(**changes: object) -> bytes:
    return json.dumps(
        EXAMPLE | {key.replace("_", "-"): item for key, item in changes.items()}
    ).encode()


def wheel(folder: Path, metadata: bytes | None) -> Inventory:
    path = folder / "demo-1-py3-none-any-x86_64_v3.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "demo-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1\n"
        )
        archive.writestr("demo-1.dist-info/RECORD", "")
        if metadata is not None:
            archive.writestr(PATH, metadata)
    with WheelTree(path) as tree:
        return collect(tree)


def test_the_variant_of_a_wheel_is_a_fact(tmp_path: Path) -> None:
    inventory = wheel(tmp_path, json.dumps(EXAMPLE).encode())
    (item,) = inventory.distributions
    properties = ("blas_lapack :: library :: openblas", "x86_64 :: level :: v3")
    assert item.variant == Variant("x86_64_v3_openblas", properties)
    assert inventory.unread == ()
    assert decode(encode(inventory)) == inventory


def test_a_wheel_without_such_metadata_is_no_variant(tmp_path: Path) -> None:
    assert wheel(tmp_path, None).distributions[0].variant is None


def test_what_reads_layers_and_parts_of_wheels_keeps_it() -> None:
    assert is_metadata(PATH)
    assert is_content_read(f"usr/lib/python3/site-packages/{PATH}", LARGEST)
    assert not is_content_read(f"usr/lib/python3/site-packages/{PATH}", LARGEST + 1)


@pytest.mark.parametrize(
    ("data", "times"), [(b"[]", 1), (b" ", 10_000_000), (b'{"variants": 1}', 1)]
)
def test_a_file_that_lies_or_is_large_is_one_sentence(
    tmp_path: Path, data: bytes, times: int
) -> None:
    inventory = wheel(tmp_path, data * times)
    assert inventory.distributions[0].variant is None
    ((place, why),) = [(item.path, item.why) for item in inventory.unread]
    assert place == PATH
    assert "\n" not in why and len(why) < 150


def test_the_null_variant_has_no_properties() -> None:
    assert read_variant(with_(variants={"null": {}})) == Variant("null", ())


def test_an_index_has_all_variants_and_drafts_have_more_priorities() -> None:
    metadata = read_variants(
        with_(
            variants={"null": {}, "v4": {"x86_64": {"level": ["v4"], "avx512_bf16": ["on"]}}},
            providers={"x86_64": {"requires": ["provider-variant-x86-64"]}},
            default_priorities={
                "namespace": ["x86_64"],
                "feature": {"x86_64": ["avx512_bf16"]},
                "property": {"x86_64": {"level": ["v2", "v1"]}},
            },
        )
    )
    assert list(metadata.variants) == ["null", "v4"]
    assert metadata.namespaces == ("x86_64",)
    assert metadata.features == {"x86_64": ("avx512_bf16",)}
    assert metadata.values == {"x86_64": {"level": ("v2", "v1")}}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "are no JSON"),
        (b"\xff\xfe{", "are no JSON"),
        (b"[" * 100_000, "are no JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"variants": {}, "variants": {}}', "something twice"),
        (b"null", "is not an object"),
        (with_(variants=[]), "is not an object"),
        (with_(variants={}), "`variants` has 0 labels"),
        (with_(variants={"a b": {}}), "'a b', which no name can be"),
        (with_(variants={"a" * 300: {}}), "which no name can be"),
        (with_(variants={"A": {}}), "'A', which no name can be"),
        (with_(variants={"a": {}}), "only `null` is without"),
        (with_(variants={"null": {"x86_64": {"level": ["v3"]}}}), "'null' has properties"),
        (with_(variants={"a": {"x86_64": {"level": []}}}), "is empty"),
        (with_(variants={"a": {"x86_64": {"level": ["v3", "v3"]}}}), "something twice"),
        (with_(variants={"a": {"x86_64": {"level": "v3"}}}), "is not a list"),
        (with_(variants={"a": {"x86_64": {"level": [3]}}}), "'3', which no name can be"),
        (with_(variants={"a": {"nvidia": {"sm_arch": ["90_real"]}}}), "does not list"),
        (with_(default_priorities=None), "is not an object"),
        (with_(default_priorities={}), "is not a list"),
        (with_(**{"$schema": SCHEMA.replace("v0.1.1", "v2.0.0")}), "version 2 of their format"),
    ],
)
def test_what_is_no_such_metadata_is_refused_in_one_sentence(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        read_variants(data)
    assert "\n" not in str(caught.value)


def test_the_metadata_of_a_wheel_have_one_variant() -> None:
    two = with_(variants={"null": {}, "v3": {"x86_64": {"level": ["v3"]}}})
    with pytest.raises(ValueError, match="these have 2"):
        read_variant(two)


def test_the_last_format_that_is_known_is_read() -> None:
    later = with_(**{"$schema": SCHEMA.replace("v0.1.1", "v1.7.0")})
    assert read_variant(later).label == "x86_64_v3_openblas"
