"""Clients of registries that others wrote: crane and oras of Debian's newer suites, podman, umoci.

What we write loads, copies, validates and unpacks there, and what they write is read by us.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

import pytest
from components import missing
from conftest import stack_program
from debian_registry import debian_registry
from layer_archives import differences, of_folder
from raw_archives import BASE, END, WITNESSES, entry
from verdict_cases import GOOD

from buildmatrix.base.data import replace
from buildmatrix.commands.verify import AdmissionDemands, verify
from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.images.documents import (
    CONFIGURATION,
    LAYER,
    MANIFEST,
    Descriptor,
    Execution,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
)
from buildmatrix.images.layers import LayerEntry, layer_writer, sort_key
from buildmatrix.images.layers import iter_archive as archive_of
from buildmatrix.images.layout import OciLayout
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.signing import verdict
from buildmatrix.signing.attached import Claim, attach
from buildmatrix.signing.documents import read_private, read_public
from buildmatrix.sources.model import Argument, ReadingOptions
from buildmatrix.sources.parse import parse

SITE = "usr/lib/python3/dist-packages"
#: Bytes that let a table of contents spare something.
DATA = random.Random(11).randbytes(2_000_000)
ARTIFACT = "text/x-test"
#: The files of two layers.
LAYERS: tuple[dict[str, bytes], ...] = (
    {
        f"{SITE}/demo-1.0.dist-info/METADATA": b"Name: demo\nVersion: 1.0\n",
        f"{SITE}/demo-1.0.dist-info/RECORD": b"demo/__init__.py,,\ndemo/_C.so,,\n",
        f"{SITE}/demo/__init__.py": b'import ctypes\nctypes.CDLL("libx.so")\n',
        "srv/data": DATA,
    },
    {f"{SITE}/demo/_C.so": Path("/bin/true").read_bytes(), "etc/x": b"x"},
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = stack_program("docker-registry", "registry-prefix/usr/bin/docker-registry")
    with debian_registry(program, tmp_path_factory.mktemp("registry")) as running:
        yield running.host


@pytest.fixture(autouse=True)
def no_logins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text("{}")  # podman wants it
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def layout(tmp_path: Path) -> OciLayout:
    """An image of ours, the only one in a layout."""
    layout = OciLayout(tmp_path / "layout")
    layers = []
    with ThreadPoolExecutor(1) as pool:
        for files in LAYERS:
            with layer_writer(layout, pool) as writer:
                for path in sorted(files, key=sort_key):
                    writer.add(LayerEntry(path, "file", 0o644, len(files[path])), [files[path]])
            layers.append(writer.layer)
    configuration = ImageConfiguration(
        architecture="amd64",
        os="linux",
        rootfs=RootFileSystem(diff_ids=tuple(layer.diff_id for layer in layers)),
        config=Execution(env=("A=b",)),
    )
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        config=layout.put(encode(configuration), CONFIGURATION),
        layers=tuple(layer.descriptor for layer in layers),
    )
    layout.publish(layout.put(encode(manifest), MANIFEST), ["1"])
    return layout


def the_image(layout: OciLayout) -> Descriptor:
    (image,) = layout.images()
    return Descriptor(media_type=image.media_type, digest=image.digest, size=image.size)


@pytest.fixture
def name(host: str, layout: OciLayout) -> Reference:
    """The image, pushed by us."""
    name = Reference.parse(f"{host}/clients/{uuid.uuid4().hex[:12]}:1")
    image = the_image(layout)
    manifest = layout.manifest(image)
    with Registry() as registry:
        for blob in (*manifest.layers, manifest.config):
            registry.push_blob(name, blob, partial(layout.open, blob))
        registry.push_manifest(name, layout.document(image), image.media_type)
    return name


@pytest.fixture
def unpacked(tmp_path: Path) -> Inventory:
    """What a container sees of `LAYERS`, by hand."""
    root = tmp_path / "root"
    for files in LAYERS:
        for path, data in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
    return replace(of_folder(root), environment={"A": "b"})


def inventory(source: object) -> Inventory:
    with Registry() as registry:
        options = ReadingOptions(DockerEngine, cache=lambda: None, registry=lambda: registry)
        return parse(Argument(str(source), "scan")).facts(options).inventory


def run(program: Path | str, *arguments: object) -> str:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def beside(name: Reference, what: str) -> Reference:
    return Reference.parse(f"{name.host}/{name.repository}-{what}:1")


# crane


@pytest.fixture(scope="module")
def crane() -> Path:
    return stack_program("crane", "judges/crane/usr/bin/crane")


def test_crane_finds_what_we_pushed_well_formed_and_unpacks_it(
    crane: Path, name: Reference, unpacked: Inventory, tmp_path: Path
) -> None:
    run(crane, "validate", "--insecure", "--remote", name)
    run(crane, "export", "--insecure", name, tmp_path / "files.tar")
    (tmp_path / "exported").mkdir()
    run("tar", "-xf", tmp_path / "files.tar", "-C", tmp_path / "exported")
    exported = replace(of_folder(tmp_path / "exported"), environment={"A": "b"})
    assert differences(exported, unpacked) == {}
    assert differences(inventory(f"registry:{name}"), unpacked) == {}


def test_what_crane_copies_saves_and_appends_is_read_by_us(
    crane: Path, name: Reference, unpacked: Inventory, tmp_path: Path
) -> None:
    copy = beside(name, "copy")
    run(crane, "copy", "--insecure", name, copy)
    assert differences(inventory(f"registry:{copy}"), unpacked) == {}
    for form, kind in (("tarball", "tar"), ("oci", "oci")):
        run(crane, "pull", "--insecure", f"--format={form}", name, tmp_path / form)
        assert differences(inventory(f"{kind}:{tmp_path / form}"), unpacked) == {}, form
    with tarfile.open(tmp_path / "more.tar", "w") as archive:
        archive.add("/bin/true", "opt/tool")
    run(
        *(crane, "append", "--insecure", "--base", name, "--new_layer", tmp_path / "more.tar"),
        *("--new_tag", copy),
    )
    found = inventory(f"registry:{copy}")
    assert "opt/tool" in {item.path for item in found.binaries}
    assert len(found.layers) == len(LAYERS) + 1


# oras


@pytest.fixture(scope="module")
def oras() -> Path:
    return stack_program("oras", "judges/oras/usr/bin/oras")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    plain = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "key.pem"]
    run(*plain)
    run("openssl", "pkey", "-in", tmp_path / "key.pem", "-pubout", "-out", tmp_path / "key.pub")
    return tmp_path


def test_oras_lists_and_copies_an_image_with_its_verdict(
    oras: Path, name: Reference, keys: Path, tmp_path: Path
) -> None:
    def verified(image: Reference) -> bool:
        demands = AdmissionDemands("rocm", (read_public(keys / "key.pub"),), date(2026, 11, 22))
        with Registry() as registry:
            return verify(registry, str(image), image, demands).verified

    with Registry() as registry:
        image = name.at(registry.resolve(name).digest)
        claim = Claim(GOOD.target.id, verdict.PREDICATE_TYPE, verdict.encode(GOOD))
        attach(registry, image, claim, read_private(keys / "key.pem", None), datetime.now(UTC))
    listed = json.loads(run(oras, "discover", "--plain-http", "--format=json", name))
    kinds = [item["artifactType"] for item in listed["referrers"]]
    assert len(kinds) == 1 and "sigstore" in kinds[0]
    assert verified(name)

    # What oras attaches beside it disturbs nothing, and is listed by us.
    (tmp_path / "note.txt").write_text("seen")
    run(
        *(oras, "attach", "--plain-http", "--disable-path-validation"),
        *(f"--artifact-type={ARTIFACT}", name, f"{tmp_path}/note.txt:text/plain"),
    )
    with Registry() as registry:
        found = [item.artifact_type for item in registry.referrers(image, image.digest)]
    assert sorted(found) == sorted([*kinds, ARTIFACT])
    assert verified(name)

    copy = beside(name, "copy")
    run(oras, "copy", "--from-plain-http", "--to-plain-http", "--recursive", name, copy)
    assert verified(copy)
    alone = beside(name, "alone")
    run(oras, "copy", "--from-plain-http", "--to-plain-http", name, alone)
    assert not verified(alone)


def test_oras_copies_our_layouts(
    oras: Path, layout: OciLayout, host: str, unpacked: Inventory, tmp_path: Path
) -> None:
    there = Reference.parse(f"{host}/clients/{uuid.uuid4().hex[:12]}:1")
    run(oras, "copy", "--from-oci-layout", "--to-plain-http", f"{layout.folder}:1", there)
    assert differences(inventory(f"registry:{there}"), unpacked) == {}
    back = tmp_path / "back"
    run(oras, "copy", "--from-plain-http", "--to-oci-layout", there, f"{back}:1")
    assert differences(inventory(f"oci:{back}"), unpacked) == {}


# podman


@pytest.fixture
def podman() -> Iterator[list[object]]:
    """podman with a storage of the test's own."""
    program = shutil.which("podman")
    if program is None:
        missing("podman", "install the package")
    # Its paths have 50 characters at most.
    with tempfile.TemporaryDirectory(prefix="podman.") as storage:
        command = [program, "--root", f"{storage}/images", "--runroot", f"{storage}/run"]
        yield [*command, "--storage-driver", "vfs"]


def test_podman_loads_and_pulls_what_we_write_and_we_read_what_it_saves(
    podman: list[object],
    layout: OciLayout,
    name: Reference,
    unpacked: Inventory,
    tmp_path: Path,
) -> None:
    with (tmp_path / "ours.tar").open("wb") as file:
        file.writelines(archive_of(layout, the_image(layout), ["example.com/ours:1"]))
    run(*podman, "load", "--input", tmp_path / "ours.tar")
    run(*podman, "pull", "--tls-verify=false", name)
    run(*podman, "pull", f"oci:{layout.folder}:1")
    ids = run(*podman, "images", "--quiet", "--no-trunc", "--all").split()
    assert len(set(ids)) == 1  # the three are one image
    for form in ("oci-archive", "docker-archive"):
        run(*podman, "save", f"--format={form}", "--output", tmp_path / form, "example.com/ours:1")
        assert differences(inventory(f"tar:{tmp_path / form}"), unpacked) == {}, form


def test_layers_that_podman_compresses_in_chunks(
    podman: list[object], layout: OciLayout, name: Reference, unpacked: Inventory
) -> None:
    run(*podman, "pull", f"oci:{layout.folder}:1")
    (identity,) = run(*podman, "images", "--quiet").split()
    there = beside(name, "chunked")
    run(
        *(*podman, "push", "--tls-verify=false", "--compression-format=zstd:chunked"),
        *("--format=oci", identity, f"docker://{there}"),
    )
    assert differences(inventory(f"registry:{there}"), unpacked) == {}


# Layers whose headers Python's tarfile reads otherwise


@pytest.mark.parametrize("engine", ["podman", "umoci"])
def test_engines_unpack_what_we_find_whatever_the_headers(
    engine: str, podman: list[object], tmp_path: Path
) -> None:
    if shutil.which(engine) is None:
        missing(engine, "install the package")
    # umoci takes no global headers.
    layers = [entry(BASE) + END] + [
        data + END
        for data, _ in WITNESSES.values()
        if engine == "podman" or b"pax_global_header" not in data
    ]
    layout = OciLayout(tmp_path / "raw")
    digests = tuple(f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers)
    configuration = ImageConfiguration(
        architecture="amd64", os="linux", rootfs=RootFileSystem(diff_ids=digests)
    )
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        config=layout.put(encode(configuration), CONFIGURATION),
        layers=tuple(layout.put(layer, LAYER) for layer in layers),
    )
    layout.publish(layout.put(encode(manifest), MANIFEST), ["1"])
    if engine == "umoci":
        run("umoci", "unpack", "--image", f"{layout.folder}:1", tmp_path / "bundle")
        root = tmp_path / "bundle" / "rootfs"
    else:
        identity = run(*podman, "pull", "--quiet", f"oci:{layout.folder}:1").strip()
        root = Path(run(*podman, "image", "mount", identity).strip())
    found = inventory(f"oci:{layout.folder}")
    assert differences(found, of_folder(root)) == {}
    assert len(found.binaries) >= len(layers)
