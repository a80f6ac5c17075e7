"""A small matrix, its locks and a base image, made in a folder: what the engine oci builds from."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from wheel_cases import ODD, ODD_FOLDERS, make_wheel, sha256

from buildmatrix.engines.oci.bases import BuiltImage
from buildmatrix.engines.oci.store import ImageStore
from buildmatrix.images.documents import (
    CONFIGURATION,
    MANIFEST,
    Descriptor,
    Execution,
    HistoryStep,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
)
from buildmatrix.images.layers import LayerEntry, layer_writer, sort_key
from buildmatrix.images.layout import OciLayout
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.model import Lock
from buildmatrix.locks.pylock import read_lock
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec

SPEC = """
schema = 1
[project]
name = "inferno"
version = "1.0"
image = "registry.example.com/acme/inferno"
[defaults]
python = ["3.11"]
variant = ["server"]
requirements = ["base.in"]
copy = [["app", "/app"]]
command = ["python", "-m", "inferno"]
env = { MODE = "{backend}", QUOTED = 'a "b" $c \\d' }
user = { name = "app", uid = 10001, groups = ["video", "render"] }
[backend.cpu]
runtime = "any"
base = "python:3.11-slim-bookworm"
"""
TARGET = "cpu-py311-server"
PASSWD = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"


def file(path: str, data: bytes | str = b"", mode: int = 0o644, **more: int) -> LayerFile:
    data = data.encode() if isinstance(data, str) else data
    return LayerFile(LayerEntry(path, "file", mode, len(data), **more), data)  # type: ignore[arg-type]


def link(path: str, target: str) -> LayerFile:
    return LayerFile(LayerEntry(path, "symlink", 0o777, target=target), b"")


def folder(path: str, mode: int = 0o755) -> LayerFile:
    return LayerFile(LayerEntry(path, "folder", mode), b"")


@dataclass(frozen=True)
class LayerFile:
    entry: LayerEntry
    data: bytes


#: A base as Debian's: with users, a skeleton and a Python behind a link.
SYSTEM = (
    file("etc/passwd", PASSWD),
    file("etc/passwd-", "old\n"),
    file("etc/group", "root:x:0:\nvideo:x:44:\nnogroup:x:65534:\n"),
    file("etc/shadow", "root:*:20000:0:99999:7:::\n", 0o640, group=42),
    file("etc/gshadow", "root:*::\nvideo:*::\n", 0o640, group=42),
    file("etc/subuid", "other:100000:65536\n"),
    file("etc/login.defs", "UMASK\t\t022\nHOME_MODE\t0750\nUID_MIN 1000\nUID_MAX 60000\n"),
    file("etc/default/useradd", "SHELL=/bin/sh\n"),
    file("etc/skel/.profile", "# profile\n"),
    folder("home"),
    folder("opt", 0o775),
    link("bin", "usr/bin"),
    file("usr/bin/python3.11", b"\x7fELF...\x003.11.2\x00...\x003.2.0\x00", 0o755),
    file("usr/lib/python3.11/os.py", "# os\n"),
    link("usr/local/bin/python3.11", "/usr/bin/python3.11"),
)


@dataclass
class Base:
    """A `BaseImage` in a layout."""

    layout: OciLayout
    reference: str
    descriptor: Descriptor
    manifest: Manifest
    configuration: ImageConfiguration
    #: Digests that were asked for.
    asked: list[str] = field(default_factory=list)

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[Iterator[bytes]]:
        self.asked.append(descriptor.digest)
        return self.layout.blob(descriptor)


def make_base(
    place: Path,
    *layers: Sequence[LayerFile],
    run: Execution | None = None,
    architecture: str = "amd64",
) -> Base:
    layout = OciLayout(place)
    made = []
    with ThreadPoolExecutor(1) as pool:
        for files in layers or (SYSTEM,):
            with layer_writer(layout, pool) as writer:
                for item in sorted(files, key=lambda item: sort_key(item.entry.path)):
                    writer.add(item.entry, [item.data])
            made.append(writer.layer)
    configuration = ImageConfiguration(
        architecture=architecture,
        os="linux",
        rootfs=RootFileSystem(diff_ids=tuple(layer.diff_id for layer in made)),
        config=run or Execution(env=("PATH=/usr/local/bin:/usr/bin",), cmd=("python3",)),
        history=tuple(HistoryStep(created_by=f"layer {n}") for n, _ in enumerate(made)),
    )
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        config=layout.put(encode(configuration), CONFIGURATION),
        layers=tuple(layer.descriptor for layer in made),
    )
    image = layout.put(encode(manifest), MANIFEST)
    layout.publish(image, ["base"])
    return Base(layout, "python:3.11-slim-bookworm", image, manifest, configuration)


@dataclass
class World:
    """A project with one target, and what it is built from."""

    root: Path
    base: Base

    @property
    def spec(self) -> Spec:
        return load_spec(self.root / "buildmatrix.toml")

    def lock(self, target: str = TARGET) -> Lock:
        (found,) = [one for one in self.spec.targets if one.id == target]
        return read_lock(self.root / found.lock)

    def store(self, name: str = "store") -> ImageStore:
        place = self.root.parent / name
        return ImageStore(place / "images", Cache(place / "cache"))


def make_world(place: Path, spec: str = SPEC, **base: object) -> World:
    """A project in `place/project`, whose lock has a heavy wheel, an odd one and a small one."""
    root = place / "project"
    (root / "app" / "inferno").mkdir(parents=True)
    (root / "base.in").write_text("odd\n")
    (root / "buildmatrix.toml").write_text(spec)
    (root / "app" / "inferno" / "__init__.py").write_text("x = 1\n")
    (root / "app" / "run.sh").write_text("#!/bin/sh\n")
    (root / "app" / "run.sh").chmod(0o755)
    wheels = root / "wheels"
    make_wheel(wheels, "odd", ODD, folders=ODD_FOLDERS)
    make_wheel(wheels, "small", {"small.py": b"y = 2\n"})
    make_wheel(wheels, "heavy", {f"heavy/lib{n}.so": bytes([n]) * 5000 for n in range(16)})
    write_lock(root)
    return World(root, make_base(place / "base", **base))  # type: ignore[arg-type]


def write_lock(root: Path, target: str = TARGET) -> None:
    """A lock of all wheels of the project; those that are called heavy say that they are."""
    packages = []
    for wheel in sorted((root / "wheels").glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        size = 5 << 20 if name.startswith("heavy") else wheel.stat().st_size
        packages.append(
            f'[[packages]]\nname = "{name}"\nversion = "{version}"\n'
            f'wheels = [{{ path = "../wheels/{wheel.name}", size = {size}, '
            f'hashes = {{ sha256 = "{sha256(wheel)}" }} }}]\n'
        )
    (root / "locks").mkdir(exist_ok=True)
    text = 'lock-version = "1.0"\ncreated-by = "tests"\n' + "".join(packages)
    (root / "locks" / f"pylock.{target}.toml").write_text(text)


def files_of(layout: OciLayout, layer: Descriptor) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """The entries of a layer, by the standard library."""
    with layout.blob(layer) as chunks:
        data = gzip.decompress(b"".join(chunks))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {}
        for member in tar:
            assert member.name not in found
            content = tar.extractfile(member) if member.isreg() else None
            found[member.name] = (member, content.read() if content else b"")
        return found


def origins(image: BuiltImage) -> list[str]:
    """The distribution or packages of each layer, as the history has them."""
    steps = [step.created_by for step in image.configuration.history if not step.empty_layer]
    return [step.rpartition(" # buildmatrix")[2].strip() if "#" in step else "" for step in steps]
