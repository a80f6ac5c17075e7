"""Fills the storage of a registry with a fleet: thousands of images that share layers as fleets do.

    python bench/fleet_registry.py FOLDER --images 10000 [--base ARCHIVE]

FOLDER becomes the storage of the `distribution` registry (its file-system driver), which serves it
as it is: nothing is pushed. A few stacks of real wheels, one layer for each heavy wheel; above each
some dozens of runtimes of small wheels; above these an application per image. Which stack and which
runtime an image has follows Zipf's law, so that a few are everywhere and most are rare. The same
arguments give the same bytes, whenever and wherever: images are added to those of a smaller fleet.
The wheels are those of `tests/corpus`; what its folder lacks (2.7 GB in all) is downloaded. The
first run took 14 minutes on two busy cores: 4 for downloads, 10 to make layers. It names each.

Layout of the storage: https://github.com/distribution/distribution/blob/v2.8.3/registry/storage/paths.go
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import random
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SITE = "opt/venv/lib/python3.11/site-packages"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIGURATION = "application/vnd.oci.image.config.v1+json"

Part = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Stack:
    """Images of one kind: the backend that they are for, and their heavy wheels."""

    name: str
    backend: str
    wheels: tuple[str, ...]


#: From the most common to the rarest. Three carry what their backend cannot use.
STACKS = (
    Stack("serve", "cpu", ("onnxruntime-1", "numpy")),
    Stack("tabular", "cpu", ("xgboost-3", "nvidia_nccl_cu12", "scikit_learn-", "scipy", "numpy")),
    Stack("train", "cuda", ("torch-2.15.0", "triton", "numpy")),
    Stack("features", "cpu", ("pandas", "pyarrow", "numpy")),
    Stack("vision", "cpu", ("torch-2.13.0+cpu", "torchvision-0.28", "opencv", "numpy")),
    Stack("kernels", "cuda", ("cupy_cuda12x", "nvidia_cuda_runtime_cu12", "numpy")),
    Stack("jax", "rocm", ("jax_rocm7_pjrt", "numpy")),
    Stack("legacy", "rocm", ("torch-2.15.0", "numpy")),
    Stack("intel", "oneapi", ("openvino", "intel_sycl_rt", "numpy")),
    Stack("stray", "cpu", ("tensorflow_rocm", "numpy")),
)
#: What runtimes are made of.
SMALL = (
    *("amdsmi", "psutil", "protobuf", "pyzmq", "moderngl", "tokenizers", "torchao"),
    *("cryptography", "matplotlib", "rmm_cu12", "cuda_bindings", "onnx-"),
    *("torchaudio", "pyopencl", "dpctl", "ultralytics", "bitsandbytes", "numba_cuda"),
)
RUNTIMES = 40
#: Tags of one repository.
TAGS = 25


def tarred(parts: Iterable[Part]) -> bytes:
    """A layer's archive of these files, without a time or an owner in it."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in parts:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return held.getvalue()


def installed(wheel: Path) -> Iterator[Part]:
    """What installing a wheel leaves."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                yield f"{SITE}/{member.filename}", archive.read(member)


@dataclass(frozen=True, slots=True)
class Layer:
    """A blob in the storage."""

    digest: str
    size: int
    diff_id: str


class Storage:
    """The storage of a registry, written as the registry itself writes it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "docker/registry/v2"
        self._links: dict[str, Path] = {}

    def blob(self, data: bytes) -> str:
        """Keep bytes under their digest."""
        digest = hashlib.sha256(data).hexdigest()
        place = self.root / "blobs/sha256" / digest[:2] / digest / "data"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        return f"sha256:{digest}"

    def layer(self, name: str, parts: Iterable[Part]) -> Layer:
        """A layer; one that this folder has already under this name is not made again."""
        note = self.root.parent / "made" / f"{name}.json"
        if note.exists():
            return Layer(**json.loads(note.read_text()))
        print(f"layer {name}", file=sys.stderr)
        data = tarred(parts)
        packed = gzip.compress(data, 1, mtime=0)
        diff_id = f"sha256:{hashlib.sha256(data).hexdigest()}"
        layer = Layer(self.blob(packed), len(packed), diff_id)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(
            json.dumps({"digest": layer.digest, "size": layer.size, "diff_id": layer.diff_id})
        )
        return layer

    def _link(self, place: Path, digest: str) -> None:
        """A file that names a digest; hard links, since each of them would fill a block."""
        if place.exists():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        first = self._links.get(digest)
        try:
            if first is None:
                raise OSError
            os.link(first, place)
        except OSError:
            place.write_text(digest)
            self._links[digest] = place

    def image(
        self, repository: str, tag: str, layers: Sequence[Layer], labels: dict[str, str], time: str
    ) -> str:
        """An image under a tag; its digest."""
        steps = [{"created_by": f"COPY layer {number} /"} for number in range(len(layers))]
        configuration = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "created": time,
                "config": {
                    "Env": ["PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"],
                    "Labels": labels,
                },
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
                "history": steps,
            }
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {
                    "mediaType": CONFIGURATION,
                    "digest": self.blob(configuration),
                    "size": len(configuration),
                },
                "layers": [
                    {"mediaType": LAYER, "digest": layer.digest, "size": layer.size}
                    for layer in layers
                ],
            }
        ).encode()
        digest = self.blob(manifest)
        home = self.root / "repositories" / repository
        blobs = [layer.digest for layer in layers]
        for blob in (*blobs, f"sha256:{hashlib.sha256(configuration).hexdigest()}"):
            self._link(home / "_layers/sha256" / blob.removeprefix("sha256:") / "link", blob)
        name = digest.removeprefix("sha256:")
        self._link(home / "_manifests/revisions/sha256" / name / "link", digest)
        self._link(home / "_manifests/tags" / tag / "current/link", digest)
        self._link(home / "_manifests/tags" / tag / "index/sha256" / name / "link", digest)
        return digest


def application(number: int, version: int) -> list[Part]:
    """An application of its own, which imports what its stack has."""
    drawn = random.Random(f"application {number} {version}")
    parts = [("srv/app/version.txt", f"{number}.{version}\n".encode())]
    for module in range(drawn.randint(1, 20)):
        lines = [f"VALUE_{line} = {drawn.randint(0, 10**9)}" for line in range(40)]
        parts.append((f"srv/app/service_{number}/module_{module}.py", "\n".join(lines).encode()))
    return parts


def base_of(archive: Path | None) -> list[Part]:
    """The files of a base image; a small stand-in where no archive is given."""
    if archive is None:
        release = b'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12"\n'
        return [("etc/os-release", release), ("opt/venv/pyvenv.cfg", b"home = /usr/bin\n")]
    with tarfile.open(archive) as opened:
        return [
            (member.name.removeprefix("./"), file.read())
            for member in opened
            if (file := opened.extractfile(member)) is not None and member.isfile()
        ]


def fetched() -> dict[str, Path]:
    """The wheel of each name in `STACKS` and `SMALL`, downloaded where it is not there yet.

    Raises RuntimeError where one cannot be had.
    """
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/corpus"))
    from corpus_fetch import fetch, wheel_folder
    from corpus_truth import read_truth

    names = dict.fromkeys((*(name for stack in STACKS for name in stack.wheels), *SMALL))
    wheels = sorted(read_truth(), key=lambda wheel: wheel.filename)
    folder = wheel_folder()
    found: dict[str, Path] = {}
    for name in names:
        print(f"wheel {name}", file=sys.stderr)
        wheel = next(wheel for wheel in wheels if wheel.filename.startswith(name))
        found[name] = fetch(wheel, folder)
    return found


def fill(folder: Path, images: int, base: Path | None = None, prefix: str = "fleet") -> None:
    """Make a fleet of so many images, in repositories `PREFIX/STACK-NUMBER`.

    Raises RuntimeError where a wheel cannot be had.
    """
    storage = Storage(folder)
    wheels = fetched()
    lowest = storage.layer("base" if base is None else f"base {base.name}", base_of(base))
    heavy = {
        name: storage.layer(wheels[name].stem, installed(wheels[name]))
        for name in dict.fromkeys(name for stack in STACKS for name in stack.wheels)
    }
    runtimes = []
    for number in range(RUNTIMES):
        drawn = random.Random(f"runtime {number}")
        chosen = sorted(drawn.sample(SMALL, drawn.randint(1, 3)))
        parts = [part for name in chosen for part in installed(wheels[name])]
        parts.append((f"opt/venv/runtime-{number}.txt", f"{number}\n".encode()))
        runtimes.append(storage.layer(f"runtime {number}", parts))
    for number in range(images):
        service, version = divmod(number, TAGS)
        drawn = random.Random(f"service {service}")
        stack = drawn.choices(STACKS, [1 / rank for rank in range(1, len(STACKS) + 1)])[0]
        runtime = drawn.choices(runtimes, [1 / rank for rank in range(1, RUNTIMES + 1)])[0]
        top = storage.layer(f"application {service:04}/{version:02}", application(service, version))
        layers = [lowest, *(heavy[name] for name in stack.wheels), runtime, top]
        labels = {
            "dev.buildmatrix.backend": stack.backend,
            "org.opencontainers.image.vendor": f"team-{service % 17}",
        }
        minutes = number % 60, number // 60 % 24, number // 1440
        time = f"2026-01-{1 + minutes[2]:02}T{minutes[1]:02}:{minutes[0]:02}:00Z"
        storage.image(f"{prefix}/{stack.name}-{service:04}", f"v{version:02}", layers, labels, time)


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--base", type=Path)
    arguments = parser.parse_args()
    fill(arguments.folder, arguments.images, arguments.base)


if __name__ == "__main__":
    main()
