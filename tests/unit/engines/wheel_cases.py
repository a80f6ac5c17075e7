"""Wheels with all that the format allows, made for tests."""

from __future__ import annotations

import base64
import hashlib
import stat
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

#: A member: its bytes, and its mode (None: made where there are none).
Member = tuple[bytes, int | None]


def make_wheel(
    folder: Path,
    name: str,
    members: Mapping[str, bytes | Member],
    *,
    version: str = "1.0",
    record: str | None = None,
    record_mode: int = 0o644,
    folders: Sequence[str] = (),
    tag: str = "py3-none-any",
    wheel: str = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
) -> Path:
    """A wheel with a RECORD of its members, or with `record`."""
    info = f"{name}-{version}.dist-info"
    files: dict[str, Member] = {
        path: member if isinstance(member, tuple) else (member, 0o644)
        for path, member in members.items()
    }
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files[f"{info}/METADATA"] = (metadata.encode(), 0o644)
    rows = [
        f"{_quoted(path)},sha256={digest(data)},{len(data)}\n" for path, (data, _) in files.items()
    ]
    text = "".join(rows) + f"{info}/RECORD,,\n" if record is None else record
    files[f"{info}/RECORD"] = (text.encode(), record_mode)
    path = folder / f"{name}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in folders:
            archive.writestr(zipfile.ZipInfo(f"{one}/"), b"")
        for member, (data, mode) in files.items():
            entry = zipfile.ZipInfo(member, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            kind = 0 if mode is None or stat.S_IFMT(mode) else stat.S_IFREG
            entry.external_attr = 0 if mode is None else (kind | mode) << 16
            archive.writestr(entry, data)
    return path


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _quoted(path: str) -> str:
    return '"' + path.replace('"', '""') + '"' if "," in path or '"' in path else path


#: A distribution that has a little of everything.
ODD: dict[str, bytes | Member] = {
    "odd/__init__.py": b"x = 1\n",
    "odd/run.sh": (b"#!/bin/sh\n", 0o755),
    "odd/secret": (b"s", 0o600),
    "odd/no-mode": (b"n", None),
    "odd/suid": (b"n", 0o4755),
    "odd/group-executes": (b"n", 0o654),
    'odd/a b,c"d.txt': b"q",
    "odd/ü.txt": b"u",
    "odd/link": (b"__init__.py", stat.S_IFLNK | 0o777),
    "odd/__pycache__/z.cpython-311.pyc": b"zz",
    "odd/scripts.py": b"def main():\n    pass\n",
    "odd-1.0.data/scripts/tool": (b"#!python\nprint(1)\n", 0o755),
    "odd-1.0.data/scripts/tool-w": b"#!pythonw -s\nprint(1)\n",
    "odd-1.0.data/scripts/tool-line": b"#!python",
    "odd-1.0.data/scripts/tool.sh": b"#!/bin/sh\necho\n",
    "odd-1.0.data/scripts/tool.elf": b"\x7fELF\n#!python\n",
    "odd-1.0.data/data/share/odd/x.txt": b"d",
    "odd-1.0.data/data/etc/x.exe": (b"d", 0o755),
    "odd-1.0.data/data/lib64/odd.so": b"so",
    "odd-1.0.data/data/lib/odd.so.1": b"so",
    "odd-1.0.data/data/lib/cmake/odd/odd.cmake": b"c",
    "odd-1.0.data/headers/odd.h": b"h",
    "odd-1.0.data/headers/deep/odd.h": b"h",
    "odd-1.0.data/purelib/odd_pure/__init__.py": b"p",
    "odd-1.0.data/platlib/odd_plat/__init__.py": (b"p", 0o755),
    "other-1.0.data/data/x": b"not this one's data",
    "odd-1.0.dist-info/entry_points.txt": (
        b"[console_scripts]\nodd-cli = odd.scripts:main\nodd-x=odd.scripts:main.sub [extra]\n"
        b"Odd_Y = odd.scripts:main\n\n[gui_scripts]\nodd-gui = odd.scripts:main\n"
        b"[other]\nx = y\n"
    ),
    "odd-1.0.dist-info/RECORD.jws": b"{}",
    "odd-1.0.dist-info/INSTALLER": (b"pip\n", 0o755),
    "odd-1.0.dist-info/sboms/x.json": b"{}",
}
ODD_FOLDERS = ("odd/empty", "odd-1.0.data/data/empty-data", "odd-1.0.data", "odd-1.0.data/data")
