"""Times the scan of a large image in a registry: first, again, after one changed layer.

    python bench/registry.py FOLDER [--larger] [WHEELS]

FOLDER gets the image, made of wheels in WHEELS (~/.cache/buildmatrix/corpus): one layer for each
heavy one, one for the others, one for an application. It is served on loopback. Its layers have
2.3 GB, and 4.2 GB with `--larger`. Seconds, bytes that came over the network and the peak of memory
(of the largest process, and of all together) are shown.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HEAVY = ("torch-2.15.0", "tensorflow-2.21.0", "nvidia_nccl", "triton", "mkl")
#: Layers of the larger image beside these.
LARGER = (
    *("nvidia_dali", "libtpu", "paddlepaddle", "jax_cuda12_pjrt", "intel_sycl_rt", "warp_lang"),
    *("cupy_cuda12x", "jax_rocm7_pjrt", "xgboost-3.2.0", "oneccl", "ray", "spconv"),
)
OTHERS = ("numpy", "scipy", "pandas", "pyarrow", "matplotlib", "protobuf", "psutil", "onnx-")
SITE = "opt/venv/lib/python3.11/site-packages"
PART = 64 << 10
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIGURATION = "application/vnd.oci.image.config.v1+json"

File = tuple[tarfile.TarInfo, Callable[[], Any]]


def files_of(wheels: list[Path], more: bytes) -> Iterator[File]:
    """What installing the wheels leaves, and one file beside it."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if not member.is_dir():
                    info = tarfile.TarInfo(f"{SITE}/{member.filename}")
                    info.size = member.file_size
                    yield info, lambda archive=archive, member=member: archive.open(member)
    info = tarfile.TarInfo("srv/stamp")
    info.size = len(more)
    yield info, lambda: io.BytesIO(more)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Layer:
    """A blob that is being written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "writing"
        self._file = self._path.open("wb")
        self.plain, self._packed = hashlib.sha256(), hashlib.sha256()
        self.size = 0

    def add(self, data: bytes) -> None:
        self._packed.update(data)
        self._file.write(data)
        self.size += len(data)

    def finish(self, kind: str, annotations: dict[str, str]) -> tuple[dict[str, Any], str]:
        self._file.close()
        digest = self._packed.hexdigest()
        self._path.rename(self._folder / digest)
        told = {"mediaType": kind, "digest": f"sha256:{digest}", "size": self.size}
        return {**told, "annotations": annotations}, f"sha256:{self.plain.hexdigest()}"


def gzipped(folder: Path, files: Iterator[File]) -> tuple[dict[str, Any], str]:
    layer = Layer(folder)

    class Out:
        def write(self, data: bytes) -> None:
            layer.add(data)

        def flush(self) -> None:
            pass

    with gzip.GzipFile(fileobj=Out(), mode="wb", compresslevel=1, mtime=0) as out:  # type: ignore[call-overload]
        for data in pieces(files):
            layer.plain.update(data)
            out.write(data)
    return layer.finish(f"{LAYER}+gzip", {})


def pieces(files: Iterator[File]) -> Iterator[bytes]:
    """The bytes of the archive."""
    for info, opened in files:
        yield info.tobuf(tarfile.PAX_FORMAT)
        with opened() as source:
            while data := source.read(PART):
                yield data
        yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def make(folder: Path, wheels: Path, heavy: tuple[str, ...]) -> None:
    """Write the images `gzip` and `changed`, of which one layer differs."""

    def of(*names: str) -> list[Path]:
        return [next(iter(sorted(wheels.glob(f"{name}*.whl")))) for name in names]

    groups = [*(of(name) for name in heavy), of(*OTHERS), []]
    made = [gzipped(folder, files_of(group, b"one")) for group in groups]
    image(folder, "gzip", made)
    made[-2] = gzipped(folder, files_of(groups[-2], b"two"))
    image(folder, "changed", made)


def image(folder: Path, tag: str, layers: list[tuple[dict[str, Any], str]]) -> None:
    configuration = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [digest for _, digest in layers]},
        }
    ).encode()
    (folder / digest_of(configuration).partition(":")[2]).write_bytes(configuration)
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": CONFIGURATION,
                "digest": digest_of(configuration),
                "size": len(configuration),
            },
            "layers": [layer for layer, _ in layers],
        }
    ).encode()
    for name in (tag, digest_of(manifest).partition(":")[2]):
        (folder / name).write_bytes(manifest)


class Server(ThreadingHTTPServer):
    """Serves FOLDER as a registry, and counts."""

    def __init__(self, folder: Path) -> None:
        self.sent = self.requests = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                path = folder / self.path.rpartition("/")[2].removeprefix("sha256:")
                outer.requests += 1
                if not path.is_file():
                    self.send_response(200 if self.path == "/v2/" else 404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                size = path.stat().st_size
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                first, last = (int(asked[1]), int(asked[2])) if asked else (0, size - 1)
                self.send_response(206 if asked else 200)
                self.send_header("Content-Length", str(last + 1 - first))
                if asked:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                if "/manifests/" in self.path:
                    self.send_header("Content-Type", MANIFEST)
                self.end_headers()
                with path.open("rb") as file:
                    left = self.connection.sendfile(file, first, last + 1 - first)
                outer.sent += left

        super().__init__(("127.0.0.1", 0), Handler)


def scan(server: Server, tag: str, cache: Path, *options: str) -> dict[str, float]:
    """One scan; what it cost."""
    name = f"registry:127.0.0.1:{server.server_address[1]}/bench:{tag}"
    before, requests, started = server.sent, server.requests, time.monotonic()
    command = [sys.executable, "-m", "buildmatrix", "scan", name, "--backend", "cpu"]
    process = subprocess.Popen(
        [*command, "--fail-on", "never", "--format", "json", "-o", os.devnull, *options],
        env={**os.environ, "BUILDMATRIX_CACHE": str(cache)},
    )
    _, status, usage = os.wait4(process.pid, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": round(time.monotonic() - started, 1),
        "cpu": round(usage.ru_utime + usage.ru_stime, 1),
        "bytes": server.sent - before,
        "requests": server.requests - requests,
        "peak_mb": usage.ru_maxrss >> 10,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    wheels = Path.home() / ".cache/buildmatrix/corpus"
    parser.add_argument("wheels", type=Path, nargs="?", default=wheels)
    parser.add_argument("--larger", action="store_true", help="an image of 4.2 GB")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "changed").exists():
        make(folder, arguments.wheels, HEAVY + LARGER * arguments.larger)
    layers = json.loads((folder / "gzip").read_bytes())["layers"]
    print(sum(layer["size"] for layer in layers), "bytes in", len(layers), "layers")
    with Server(folder) as server, tempfile.TemporaryDirectory() as cache:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("first", scan(server, "gzip", Path(cache)))
        print("again", scan(server, "gzip", Path(cache)))
        print("one layer changed", scan(server, "changed", Path(cache)))
        server.shutdown()


if __name__ == "__main__":
    main()
