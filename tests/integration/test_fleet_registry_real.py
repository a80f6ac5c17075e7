"""What Debian's docker-registry says that it has: its catalog, and the tags of its repositories."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import make_certificate
from conftest import stack_program
from debian_registry import LOGIN, DebianRegistry, TokenServer, debian_registry

from buildmatrix.catalogue.load import load
from buildmatrix.fleet.reference_lists import SubjectList, SubjectSettings
from buildmatrix.fleet.subjects import Lister
from buildmatrix.images import documents
from buildmatrix.images.documents import (
    Descriptor,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
)
from buildmatrix.net import registry_client
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def guarded(
    certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DebianRegistry]:
    """A registry that gives its catalog to ann alone, and no pages of more than 5 names."""
    program = stack_program("docker-registry", "registry-prefix/usr/bin/docker-registry")
    folder = tmp_path_factory.mktemp("registry")
    with (
        TokenServer(certificate) as tokens,
        debian_registry(
            program,
            folder,
            certificate=certificate,
            auth=tokens.auth,
            catalog={"maxentries": 5},
        ) as running,
    ):
        yield running


@pytest.fixture(autouse=True)
def log_in(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    certificate: tuple[Path, Path],
    guarded: DebianRegistry,
) -> Callable[[], None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)

    def write() -> None:
        auth = base64.b64encode(":".join(LOGIN).encode()).decode()
        path = tmp_path / "docker" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"auths": {guarded.host: {"auth": auth}}}))

    return write


def push(registry: Registry, reference: Reference, created: str) -> None:
    """An image without layers that was made then."""
    configuration = encode(
        ImageConfiguration(
            architecture="amd64", os="linux", rootfs=RootFileSystem(diff_ids=()), created=created
        )
    )
    descriptor = Descriptor(
        media_type=documents.CONFIGURATION,
        digest=f"sha256:{hashlib.sha256(configuration).hexdigest()}",
        size=len(configuration),
    )
    registry.push_blob(reference, descriptor, lambda: io.BytesIO(configuration))
    manifest = Manifest(media_type=documents.MANIFEST, config=descriptor, layers=())
    registry.push_manifest(reference, encode(manifest), documents.MANIFEST)


def found(source: str, **settings: object) -> SubjectList:
    with Registry() as registry:
        return Lister(SubjectSettings(**settings), load(), lambda: registry).find([source])


def test_a_real_catalog(
    guarded: DebianRegistry, log_in: Callable[[], None], monkeypatch: pytest.MonkeyPatch
):
    log_in()
    with Registry() as registry:
        for number in range(7):
            name = f"{guarded.host}/team-{number % 3}/app-{number}"
            for tag, month in (("cuda-1.9", 1), ("cuda-1.10", 2), ("cpu-1.0", 3)):
                push(registry, Reference.parse(f"{name}:{tag}"), f"2026-0{month}-01T00:00:00Z")
    # Pages of so many names as are asked for are refused by this registry.
    assert len(found(f"registry:{guarded.host}/*").subjects) == 21
    monkeypatch.setattr(registry_client, "_PAGE_NAMES", 2)
    held = found(f"registry:{guarded.host}/team-1/*:cuda-*", newest=1)
    assert [item.reference for item in held.subjects] == [
        f"{guarded.host}/team-1/app-1:cuda-1.10",
        f"{guarded.host}/team-1/app-4:cuda-1.10",
    ]
    assert held.missing == held.notes == ()
    assert len(found(f"registry:{guarded.host}/*").subjects) == 21


def test_a_real_registry_that_keeps_its_catalog_to_itself(guarded: DebianRegistry):
    held = found(f"registry:{guarded.host}/*")
    assert held.subjects == ()
    (sentence,) = held.missing
    assert sentence.startswith(f"{guarded.host}: the registry wants credentials (401)")
    assert sentence.endswith("or the images in a file (file:images.txt)")
