"""Which image of an index or an archive is judged: the one that skopeo and podman take, or none.

They share one library, containers/image. What containerd and Docker take is in
`tests/fuzz/image_oracle.go`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from components import missing
from image_registry import ImageRegistry
from layer_archives import tar

from buildmatrix.base.errors import BuildmatrixError, ComponentError
from buildmatrix.engines.model import Engine
from buildmatrix.net.registry_client import Registry
from buildmatrix.sources.model import Argument, ReadingOptions
from buildmatrix.sources.parse import parse

AMD64 = {"os": "linux", "architecture": "amd64"}
X86_64 = {"os": "Linux", "architecture": "x86_64"}
ATTESTATION = {"vnd.docker.reference.type": "attestation-manifest"}
ELF = b"\x7fELF\x02\x01\x01" + bytes(57)


@pytest.fixture(scope="module", autouse=True)
def skopeo() -> None:
    if shutil.which("skopeo") is None:
        missing("skopeo", "apt-get install skopeo")


@pytest.fixture
def server() -> Iterator[ImageRegistry]:
    with ImageRegistry() as server:
        yield server


def no_engine() -> Engine:
    raise ComponentError("no engine")


def judged(source: str) -> str | None:
    """The name of the one library of the image that we read; None where we refuse."""
    with Registry() as registry:
        options = ReadingOptions(no_engine, platform="linux/amd64", registry=lambda: registry)
        try:
            (binary,) = parse(Argument(source, "scan")).facts(options).inventory.binaries
        except BuildmatrixError:
            return None
        return binary.path


def taken(source: str) -> str | None:
    """The same of the image that skopeo takes."""
    command = ["skopeo", "--override-os=linux", "--override-arch=amd64", "inspect", "--config"]
    insecure = ["--tls-verify=false"] if source.startswith("docker:") else []
    done = subprocess.run(
        [*command, *insecure, source], capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout)["config"]["Labels"]["name"] if done.returncode == 0 else None


@pytest.mark.parametrize(
    ("first", "second", "ours", "theirs"),
    [
        ({"platform": AMD64, "annotations": ATTESTATION}, {"platform": AMD64}, None, "first"),
        ({"platform": X86_64}, {"platform": AMD64}, None, "second"),
        ({"platform": {**AMD64, "variant": "v1"}}, {"platform": AMD64}, None, "second"),
        ({"platform": {"os": "unknown", "architecture": "unknown"}}, {"platform": AMD64}, "second",
         "second"),
        ({"platform": None}, {"platform": AMD64}, "second", "second"),
        ({"platform": AMD64, "Platform": X86_64}, {"platform": AMD64}, None, "second"),
        ({"platform": {**AMD64, "variant": "v3"}}, {"platform": AMD64}, "second", "second"),
    ],
)  # fmt: skip
def test_an_index_in_a_registry(
    server: ImageRegistry,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    ours: str | None,
    theirs: str,
) -> None:
    entries = [
        {**server.image([tar([(name, ELF)])], config={"Labels": {"name": name}}), **more}
        for name, more in (("first", first), ("second", second))
    ]
    server.index(*entries, tag="1")
    assert taken(f"docker://{server.host}/app:1") == theirs
    assert judged(f"registry:{server.host}/app:1") == ours


def test_an_archive_of_two_images(server: ImageRegistry, tmp_path: Path) -> None:
    """`docker load` reads manifest.json, as skopeo's docker-archive does; podman index.json."""
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
    entries, listed = [], []
    for name in ("first", "second"):
        config = {"Labels": {"name": name}}
        entry = server.image([tar([(name, ELF)])], config=config, tag=name)
        data, _ = server.documents[name]
        manifest = json.loads(data)
        files[f"blobs/{entry['digest'].replace(':', '/')}"] = data
        paths = []
        for blob in (manifest["config"], *manifest["layers"]):
            paths.append(f"blobs/{blob['digest'].replace(':', '/')}")
            files[paths[-1]] = server.blobs[blob["digest"]]
        entries.append({key: value for key, value in entry.items() if key != "platform"})
        listed.append({"Config": paths[0], "RepoTags": ["app:1"], "Layers": paths[1:]})
    for image, expected in ((0, "first"), (1, None)):
        files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": entries[:1]}).encode()
        files["manifest.json"] = json.dumps(listed[image : image + 1]).encode()
        path = tmp_path / f"{image}.tar"
        path.write_bytes(tar(list(files.items())))
        assert taken(f"oci-archive:{path}") == "first"
        assert taken(f"docker-archive:{path}") == ("first", "second")[image]
        assert judged(f"tar:{path}") == expected
