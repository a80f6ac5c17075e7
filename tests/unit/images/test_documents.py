"""Documents of images: read strictly, written in one way."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images import documents
from buildmatrix.images.documents import (
    Descriptor,
    Execution,
    ImageConfiguration,
    Manifest,
    Platform,
    RootFileSystem,
    configuration_of,
    encode,
    manifest_of,
    media_type_of,
)

A, B = (f"sha256:{hashlib.sha256(name).hexdigest()}" for name in (b"a", b"b"))
CONFIG = {"mediaType": documents.CONFIGURATION, "digest": A, "size": 2}
LAYER = {"mediaType": documents.LAYER_GZIP, "digest": B, "size": 3}
MANIFEST = {"schemaVersion": 2, "config": CONFIG, "layers": [LAYER]}
CONFIGURATION: dict[str, Any] = {
    "architecture": "amd64",
    "os": "linux",
    "rootfs": {"type": "layers", "diff_ids": [A]},
}


def _manifest(document: object) -> Manifest:
    return manifest_of(json.dumps(document).encode(), "the manifest of x")


def test_a_manifest_is_read_and_written() -> None:
    manifest = _manifest({**MANIFEST, "annotations": None, "unknown": {"mediaType": "x"}})
    assert manifest.layers == (Descriptor(media_type=documents.LAYER_GZIP, digest=B, size=3),)
    assert manifest.annotations == {}
    assert json.loads(encode(manifest)) == MANIFEST


def test_the_same_data_has_the_same_bytes() -> None:
    def written(annotations: dict[str, str]) -> bytes:
        config = Descriptor(media_type=documents.CONFIGURATION, digest=A, size=2)
        return encode(Manifest(config=config, layers=(), annotations=annotations))

    assert written({"a": "1", "b": "2"}) == written({"b": "2", "a": "1"})
    assert b'"schemaVersion":2' in written({})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (json.dumps({**MANIFEST, "Layers": []}), "'Layers' differs from 'layers' in case only"),
        (json.dumps({**MANIFEST, "layer\u017f": []}), "in case only"),
        (json.dumps({**MANIFEST, "layers": [{**LAYER, "Digest": A}]}), "'Digest' differs"),
        (json.dumps(MANIFEST)[:-1] + ', "layers": []}', "the key 'layers' comes twice in it"),
        (json.dumps({**MANIFEST, "manifests": []}), "so is something else as well"),
        (json.dumps({**MANIFEST, "Manifests": []}), "so is something else as well"),
        (json.dumps({**MANIFEST, "annotations": {"a": "\ud800"}}), "not a JSON document"),
        (json.dumps({**MANIFEST, "x": float("nan")}), "not a JSON document"),
        (json.dumps({**MANIFEST, "x": 1 << 64}), "more than 64 bits"),
        (json.dumps(MANIFEST) + "{}", "trailing characters"),
        ("\ufeff" + json.dumps(MANIFEST), "not a JSON document"),
        (json.dumps({**MANIFEST, "mediaType": documents.INDEX}), "calls itself"),
        (json.dumps({**MANIFEST, "mediaType": 5}), "calls itself"),
        (json.dumps({**MANIFEST, "schemaVersion": 1}), "schemaVersion"),
        (json.dumps({**MANIFEST, "layers": [{**LAYER, "size": -1}]}), "size"),
        (json.dumps({**MANIFEST, "layers": [{**LAYER, "size": True}]}), "size"),
        (json.dumps({**MANIFEST, "layers": [{**LAYER, "digest": "sha256:../.."}]}), "digest"),
        (json.dumps({**MANIFEST, "layers": [{**LAYER, "digest": f"{A}\n"}]}), "digest"),
        (json.dumps({**MANIFEST, "layers": {}}), "layers"),
        ("[" * 100_000, "nests too deeply"),
        ("[" * 201 + "]" * 201, "nests too deeply"),
        ('{"size": ' + "9" * 5000 + "}", "not a JSON document"),
        ("5", "not a valid manifest of an image"),
        ("", "not a JSON document"),
        ("{", "not a JSON document"),
    ],
)
def test_a_document_that_two_programs_may_read_differently_is_refused(text: str, why: str) -> None:
    with pytest.raises(UndecidedError, match=r"^the manifest of x is not a ") as error:
        manifest_of(text.encode(), "the manifest of x")
    assert why in error.value.message


@pytest.mark.parametrize(
    ("data", "times"),
    [(b"\xff", 1), (b'{"a": "\xff"}', 1), (b" ", documents.MAX_DOCUMENT + 1)],
)
def test_what_is_no_text_or_too_long_is_refused(data: bytes, times: int) -> None:
    data *= times
    with pytest.raises(UndecidedError, match="not a JSON document"):
        manifest_of(data, "it")
    with pytest.raises(UndecidedError, match="not a JSON document"):
        media_type_of(data, "it")


def test_keys_that_anybody_chooses_may_be_spelled_as_they_like() -> None:
    manifest = _manifest({**MANIFEST, "annotations": {"Layers": "x", "layers": "y"}})
    assert manifest.annotations == {"Layers": "x", "layers": "y"}
    configuration = {**CONFIGURATION, "config": {"Labels": {"Env": "x", "OS": "y"}}}
    assert configuration_of(json.dumps(configuration).encode(), "it").config.labels["Env"] == "x"


def test_a_configuration_of_docker_is_read() -> None:
    data = json.dumps(
        {
            **CONFIGURATION,
            "config": {"Env": ["A=1"], "Cmd": None, "Labels": None, "OnBuild": None, "Image": ""},
            "container_config": {"Hostname": "x", "Cmd": ["/bin/sh"]},
            "docker_version": "28",
            "history": [{"created_by": "RUN x"}, {"created_by": "ENV y", "empty_layer": True}],
            "os.version": "10.0",
        }
    )
    configuration = configuration_of(data.encode(), "it")
    assert configuration.config.env == ("A=1",)
    assert [step.empty_layer for step in configuration.history] == [False, True]
    assert configuration.platform.os_version == "10.0"


def test_a_configuration_that_is_written_is_read_again() -> None:
    configuration = ImageConfiguration(
        architecture="arm64",
        os="linux",
        variant="v8",
        rootfs=RootFileSystem(diff_ids=(A, B)),
        config=Execution(env=("PATH=/bin",), labels={"b": "1", "a": "2"}, working_dir="/srv"),
    )
    assert configuration_of(encode(configuration), "it") == configuration
    assert json.loads(encode(configuration))["config"]["WorkingDir"] == "/srv"


@pytest.mark.parametrize("text", ["linux", "linux/", "/amd64", "a/b/c/d", ""])
def test_what_is_no_platform_is_refused(text: str) -> None:
    with pytest.raises(UndecidedError, match="not a platform"):
        Platform.parse(text)


@pytest.mark.parametrize(
    ("document", "media_type"),
    [
        ({"mediaType": documents.DOCKER_MANIFEST}, documents.DOCKER_MANIFEST),
        ({"manifests": []}, documents.INDEX),
        ({"layers": []}, documents.MANIFEST),
        ({}, ""),
        ([], ""),
    ],
)
def test_the_kind_of_a_document_is_what_it_says_or_has(document: object, media_type: str) -> None:
    assert media_type_of(json.dumps(document).encode(), "it") == media_type
