"""Small wheels on a loopback index, locked by hand: what an audit is tried on without a network."""

from __future__ import annotations

import hashlib
import random
import zipfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from elf_images import Image, Part, fat_binary, fat_entry
from hasty import HASTY
from index import IndexServer

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Silent
from buildmatrix.commands.audit import audit, judge_for
from buildmatrix.images.store.cache import Cache
from buildmatrix.judge.judging import Judge
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Lock, Package, Staleness, Wheel
from buildmatrix.matrix.model import bare_target
from buildmatrix.reports.run import Report
from buildmatrix.sources.resolved import Resolved

CUDART = b"CUDA driver version is insufficient for CUDA runtime version\0"


def noise(size: int, seed: int = 1) -> bytes:
    """What deflate cannot make smaller: it repeats far behind what deflate looks back at."""
    block = random.Random(seed).randbytes(min(size, 1 << 20))
    return (block * (size // len(block) + 1))[:size] if block else b""


def library(*needed: str, size: int = 1000) -> bytes:
    return Image(needed=needed, parts=(Part(".text", noise(size), flags=6),)).build()


def embedded(
    before: int = 600_000, behind: int = 1_000_000, *, section_headers: bool = True
) -> bytes:
    """A library without a name of a vendor's, with 18 MB of device code and its static runtime.

    Without `section_headers` its end does not say that there is device code.
    """
    code = fat_binary(fat_entry(2, 80, noise(9_000_000)), fat_entry(2, 90, noise(9_000_000)))
    parts = (
        Part(".text", noise(before), flags=6),
        Part(".rodata", CUDART),
        Part(".nv_fatbin", code),
        Part(".data", noise(behind, 2)),
    )
    image = Image(needed=("libm.so.6",), parts=parts, section_headers=section_headers)
    return image.build()


class Locked:
    """Wheels in a folder that a server shows, and a lock of them."""

    def __init__(self, folder: Path, server: IndexServer) -> None:
        self.folder = folder
        self.server = server
        self.packages: list[Package] = []
        #: Whether it stands for pinned requirements, which an installer completes.
        self.is_completed = False

    def add(
        self,
        line: str,
        via: str = "requirements.in:1",
        files: Mapping[str, bytes] | None = None,
        requires: Sequence[str] = (),
        *,
        tag: str = "py3-none-any",
    ) -> Path:
        """A wheel of `name version`; several askers are split at commas."""
        name, version = line.split()
        stem = f"{name.replace('-', '_')}-{version}"
        info = f"{stem}.dist-info"
        metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n" + "".join(
            f"Requires-Dist: {one}\n" for one in requires
        )
        members = {
            **(files or {f"{name.replace('-', '_')}/__init__.py": b"import sys\n"}),
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\n",
        }
        record = "".join(f"{path},,\n" for path in [*members, f"{info}/RECORD"])
        path = self.folder / f"{stem}-{tag}.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in {**members, f"{info}/RECORD": record.encode()}.items():
                # Much data are noise, which deflate only copies: level 0 does it at once.
                archive.writestr(member, data, compresslevel=0 if len(data) > 1 << 20 else 1)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        wheel = Wheel(path.name, self.server.file_url(path.name), digest, path.stat().st_size)
        self.packages.append(
            Package(name, version, None, (wheel,), False, tuple(sorted(via.split(","))))
        )
        return path

    def lock(self) -> Lock:
        lock = Lock(Path("pylock.toml"), tuple(self.packages), "", "sha256:0")
        return replace(lock, is_completed=self.is_completed)

    def text(self) -> str:
        """The lock as a file of PEP 751, as buildmatrix writes it."""
        lines = ['lock-version = "1.0"', 'created-by = "a test"']
        for one in self.packages:
            lines += ["", "[[packages]]", f'name = "{one.name}"', f'version = "{one.version}"']
            for wheel in one.wheels:
                lines.append(
                    f'wheels = [{{ url = "{wheel.url}", size = {wheel.size}, '
                    f'hashes = {{ sha256 = "{wheel.sha256}" }} }}]'
                )
        lines += ["", "[tool.buildmatrix]", "schema = 1", "[tool.buildmatrix.packages]"]
        lines += [
            f'"{one.name}" = {{ via = [{", ".join(f"{asker!r}" for asker in one.via)}] }}'
            for one in self.packages
        ]
        return "\n".join(lines) + "\n"

    def audit(
        self,
        *backends: str,
        cache: Path | None = None,
        stale: Staleness | None = None,
        judge: Judge | None = None,
        **more: object,
    ) -> Report:
        """Audit the lock for `backends`, each once."""
        found = [
            Resolved(
                bare_target(name, name, python="3.11", lock="pylock.toml"),
                self.lock(),
                stale,
                "pylock.toml",
            )
            for name in backends
        ]
        judge = judge or judge_for(None, (), "error", date(2026, 11, 21), ())
        with Client(patience=HASTY) as client:
            reader = WheelReader(client, Cache(cache))
            return audit(
                *("pylock.toml", found, reader, judge, Silent()),
                cache=Cache(cache),
                **more,  # type: ignore[arg-type]
            )
