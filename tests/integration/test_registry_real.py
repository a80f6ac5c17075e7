"""Debian's docker-registry with TLS, passwords and tokens; skopeo judges what we write."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from certificates import make_certificate
from components import missing
from conftest import stack_program
from debian_registry import LOGIN, DebianRegistry, TokenServer, debian_registry, htpasswd
from relay import Relay

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images import documents
from buildmatrix.images.documents import (
    Descriptor,
    Execution,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
    manifest_of,
)
from buildmatrix.net import registry_blobs
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference


@pytest.fixture(scope="session")
def program() -> Path:
    """The program of Debian's package."""
    return stack_program("docker-registry", "registry-prefix/usr/bin/docker-registry")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(autouse=True)
def surroundings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: tuple[Path, Path]
) -> Path:
    """A configuration of Docker of the test's own, and the authority of its certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def log_in(surroundings: Path) -> Callable[[str], Path]:
    def write(host: str) -> Path:
        auth = base64.b64encode(":".join(LOGIN).encode()).decode()
        path = surroundings / "docker" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"auths": {host: {"auth": auth}}}))
        return path

    return write


@pytest.fixture(params=["password", "token"])
def guarded(
    request: pytest.FixtureRequest, program: Path, certificate: tuple[Path, Path], tmp_path: Path
) -> Iterator[DebianRegistry]:
    """A registry with TLS that wants to know who comes."""
    if request.param == "password":
        with debian_registry(
            program, tmp_path, certificate=certificate, auth=htpasswd(tmp_path)
        ) as running:
            yield running
        return
    with (
        TokenServer(certificate) as tokens,
        debian_registry(program, tmp_path, certificate=certificate, auth=tokens.auth) as running,
    ):
        yield running


@pytest.fixture
def plain(program: Path, tmp_path: Path) -> Iterator[DebianRegistry]:
    """A registry without anything, as the one of `scripts.stack`."""
    with debian_registry(program, tmp_path) as running:
        yield running


@dataclass(frozen=True)
class Image:
    """A small one, generated."""

    manifest: bytes
    blobs: dict[str, bytes]

    @property
    def parsed(self) -> Manifest:
        return manifest_of(self.manifest, "the generated image")

    def push(self, registry: Registry, reference: Reference, *mount_from: str) -> Descriptor:
        parsed = self.parsed
        for descriptor in (*parsed.layers, parsed.config):
            data = self.blobs[descriptor.digest]
            registry.push_blob(
                reference, descriptor, lambda data=data: io.BytesIO(data), mount_from
            )
        return registry.push_manifest(reference, self.manifest, documents.MANIFEST)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _layer(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture(scope="session")
def image() -> Image:
    """Two layers; the second has 3 MB that gzip cannot make smaller."""
    noise = random.Random(3).randbytes(3_000_000)
    plain = [_layer("etc/motd", b"hello\n"), _layer("opt/noise", noise)]
    layers = [gzip.compress(layer, mtime=0) for layer in plain]
    configuration = encode(
        ImageConfiguration(
            architecture="amd64",
            os="linux",
            rootfs=RootFileSystem(diff_ids=tuple(map(_digest, plain))),
            config=Execution(env=("PATH=/bin",), labels={"a": "b"}),
        )
    )

    def described(media_type: str, data: bytes) -> Descriptor:
        return Descriptor(media_type=media_type, digest=_digest(data), size=len(data))

    manifest = Manifest(
        media_type=documents.MANIFEST,
        config=described(documents.CONFIGURATION, configuration),
        layers=tuple(described(documents.LAYER_GZIP, layer) for layer in layers),
    )
    blobs = {_digest(data): data for data in (*layers, configuration)}
    return Image(encode(manifest), blobs)


def skopeo(*arguments: str) -> str:
    """What skopeo prints; it has to succeed."""
    if shutil.which("skopeo") is None:
        missing("skopeo", "install the package")
    done = subprocess.run(
        ["skopeo", "--insecure-policy", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(registry: Registry, reference: Reference, descriptor: Descriptor) -> bytes:
    with registry.blob(reference, descriptor) as chunks:
        return b"".join(chunks)


def check(registry: Registry, reference: Reference, image: Image) -> None:
    """The whole image is there, under this name."""
    found = registry.manifest(reference)
    assert found.data == image.manifest
    for descriptor in (*image.parsed.layers, image.parsed.config):
        assert read(registry, reference, descriptor) == image.blobs[descriptor.digest]


def test_what_we_write_is_read_by_skopeo(
    guarded: DebianRegistry, log_in: Callable[[str], Path], image: Image, tmp_path: Path
) -> None:
    authorization = log_in(guarded.host)
    reference = Reference.parse(f"{guarded.host}/team/app:1.0")
    with Registry() as registry:
        written = image.push(registry, reference)
        check(registry, reference, image)
    seen = json.loads(skopeo("inspect", "--authfile", str(authorization), f"docker://{reference}"))
    assert seen["Digest"] == written.digest
    assert seen["Labels"] == {"a": "b"}
    # It checks the digests of all that it copies, and of the layers unpacked.
    layout = tmp_path / "layout"
    skopeo("copy", "--src-authfile", str(authorization), f"docker://{reference}", f"oci:{layout}:x")
    digest = written.digest.partition(":")[2]
    assert (layout / "blobs/sha256" / digest).read_bytes() == image.manifest


@pytest.mark.parametrize("form", ["oci", "v2s2"])
def test_what_skopeo_writes_is_read_by_us(
    guarded: DebianRegistry,
    log_in: Callable[[str], Path],
    image: Image,
    tmp_path: Path,
    form: str,
) -> None:
    authorization = log_in(guarded.host)
    with Registry() as registry:
        first = Reference.parse(f"{guarded.host}/team/app:1.0")
        image.push(registry, first)
        second = Reference.parse(f"{guarded.host}/team/copied:{form}")
        skopeo(
            "copy", "--authfile", str(authorization), "--format", form,
            f"docker://{first}", f"docker://{second}",
        )  # fmt: skip
        resolved = registry.resolve(second)
        assert resolved.media_type == (
            documents.MANIFEST if form == "oci" else documents.DOCKER_MANIFEST
        )
        manifest = manifest_of(registry.manifest(second.at(resolved.digest)).data, "it")
        assert [layer.digest for layer in manifest.layers] == [
            layer.digest for layer in image.parsed.layers
        ]
        for layer in manifest.layers:
            assert read(registry, second, layer) == image.blobs[layer.digest]


def test_nobody_else_may_write(guarded: DebianRegistry, image: Image) -> None:
    reference = Reference.parse(f"{guarded.host}/team/app:1.0")
    with Registry() as registry, pytest.raises(UndecidedError) as failure:
        image.push(registry, reference)
    assert f"log in with `docker login {guarded.host}`" in failure.value.message
    assert failure.value.message.startswith(reference.name)


def test_a_wrong_password_is_named(
    guarded: DebianRegistry, log_in: Callable[[str], Path], image: Image
) -> None:
    path = log_in(guarded.host)
    path.write_text(path.read_text().replace(base64.b64encode(b"ann:hunter2").decode(), "YTpi"))
    with Registry() as registry, pytest.raises(UndecidedError) as failure:
        registry.resolve(Reference.parse(f"{guarded.host}/team/app:1.0"))
    assert f"does not take the credentials from {path} (401)" in failure.value.message


def test_layers_are_taken_over_from_another_repository(
    guarded: DebianRegistry, log_in: Callable[[str], Path], image: Image
) -> None:
    log_in(guarded.host)
    with Registry() as registry:
        image.push(registry, Reference.parse(f"{guarded.host}/team/base:1.0"))
        before = registry.bytes_sent
        other = Reference.parse(f"{guarded.host}/team/app:1.0")
        image.push(registry, other, "team/nothing", "team/base")
        assert registry.bytes_sent == before > 3_000_000
        check(registry, other, image)


@pytest.mark.parametrize("after", [200_000, 1_500_000, 2_900_000])
@pytest.mark.parametrize("piece", [1 << 20, 64 << 20])
def test_a_broken_upload_begins_again(
    plain: DebianRegistry,
    image: Image,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    piece: int,
) -> None:
    """This registry forgets an upload whose piece broke, and says so by 404."""
    monkeypatch.setattr(registry_blobs, "CHUNK", piece)
    with Relay(plain.port) as relay, Registry() as registry:
        reference = Reference.parse(f"127.0.0.1:{relay.port}/team/app:1.0")
        relay.cut_up(after)
        image.push(registry, reference)
        assert relay.cuts == 1
        check(registry, reference, image)
        size = sum(len(data) for data in image.blobs.values())
        assert relay.up.passed < after + size + 100_000


def test_an_upload_that_broke_between_pieces_goes_on(
    plain: DebianRegistry, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_blobs, "CHUNK", 1 << 20)
    layer = image.parsed.layers[1]
    with Relay(plain.port) as relay, Registry() as registry:
        reference = Reference.parse(f"127.0.0.1:{relay.port}/team/app:1.0")
        opened = 0

        def open() -> io.BytesIO:
            """Cuts where the third piece begins."""
            nonlocal opened
            opened += 1
            if opened == 3:
                relay.cut_up(0)
            return io.BytesIO(image.blobs[layer.digest])

        registry.push_blob(reference, layer, open)
        assert relay.cuts == 1
        assert read(registry, reference, layer) == image.blobs[layer.digest]
        assert relay.up.passed < layer.size + 100_000, "nothing is sent twice"


def test_a_broken_download_goes_on_where_it_was(plain: DebianRegistry, image: Image) -> None:
    with Relay(plain.port) as relay, Registry() as registry:
        image.push(registry, Reference.parse(f"{plain.host}/team/app:1.0"))
        reference = Reference.parse(f"127.0.0.1:{relay.port}/team/app:1.0")
        before = relay.down.passed
        relay.cut_down(2_000_000)
        check(registry, reference, image)
        assert relay.cuts == 1
        size = sum(len(data) for data in image.blobs.values())
        assert relay.down.passed - before < size + 100_000, "nothing comes twice"


def test_what_is_attached_is_found_without_the_api(plain: DebianRegistry, image: Image) -> None:
    """Debian's registry has none."""
    reference = Reference.parse(f"{plain.host}/team/app:1.0")
    empty = Descriptor(media_type=documents.EMPTY, digest=_digest(b"{}"), size=2)
    with Registry() as registry:
        subject = image.push(registry, reference)
        registry.push_blob(reference, empty, lambda: io.BytesIO(b"{}"))
        pushed = [
            registry.push_referrer(
                reference,
                encode(
                    Manifest(
                        media_type=documents.MANIFEST,
                        artifact_type="application/vnd.test",
                        config=empty,
                        layers=(empty,),
                        subject=subject,
                        annotations={"number": str(number)},
                    )
                ),
            )
            for number in range(3)
        ]
        assert registry.referrers(reference, subject.digest, "application/vnd.test") == pushed
        assert registry.referrers(reference, subject.digest, "application/other") == []
    tags = json.loads(skopeo("list-tags", "--tls-verify=false", f"docker://{plain.host}/team/app"))[
        "Tags"
    ]
    assert sorted(tags) == ["1.0", subject.digest.replace(":", "-")]


PUSH = textwrap.dedent(
    """
    import io, pickle, sys
    from buildmatrix.images import documents
    from buildmatrix.net import registry_blobs as uploads
    from buildmatrix.net.registry_client import Registry
    from buildmatrix.net.registry_mirrors import Reference
    uploads.CHUNK = 1 << 19
    reference, layers, blobs, manifest = pickle.load(sys.stdin.buffer)
    with Registry() as registry:
        for layer in layers:
            registry.push_blob(reference, layer, lambda: io.BytesIO(blobs[layer.digest]))
        registry.push_manifest(reference, manifest, documents.MANIFEST)
    """
)


@pytest.mark.parametrize(
    "after", [1, 100, 2_000, 500_000, 1_000_000, 2_000_000, 2_999_000, 3_001_000, 3_003_000]
)
def test_a_push_that_is_killed_leaves_nothing_that_looks_whole(
    plain: DebianRegistry, image: Image, after: int
) -> None:
    import pickle

    with Relay(plain.port) as relay, Registry() as registry:
        reference = Reference.parse(f"127.0.0.1:{relay.port}/team/app:1.0")
        layers = (*image.parsed.layers, image.parsed.config)
        given = pickle.dumps((reference, layers, image.blobs, image.manifest))
        process = subprocess.Popen(
            [sys.executable, "-c", PUSH], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        relay.cut_up(after, lambda: os.kill(process.pid, signal.SIGKILL))
        process.communicate(given, timeout=300)
        assert process.returncode == -signal.SIGKILL and relay.cuts == 1
        own = Reference.parse(f"{plain.host}/team/app:1.0")
        with pytest.raises(UndecidedError, match=r"404"):
            registry.resolve(own)
        for layer in layers:
            if registry.has_blob(own, layer.digest):
                assert read(registry, own, layer) == image.blobs[layer.digest]
        # A later push goes on, and what was there is not sent again.
        image.push(registry, own)
        check(registry, own, image)
