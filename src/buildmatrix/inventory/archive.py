"""The scan core as one file that any Python can run, so that a scan happens where the layers are.

`python3 scan.pyz ROOT OUTPUT.json` needs Python 3.10 or later and nothing else; the exit codes are
those of `inventory.scan`.
"""

from __future__ import annotations

import io
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable

#: What travels. Nothing in there imports anything but the standard library (import-linter checks).
PACKAGES = ("trees", "elf", "device_code", "binaries", "python_imports", "inventory")
#: Slotted dataclasses and `match` came with it.
OLDEST_PYTHON = (3, 10)

# The only module that an older Python must be able to compile. Exit code 5: a component is too old.
_MAIN = f"""\
import sys

if sys.version_info < {OLDEST_PYTHON}:
    needed = "{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]}"
    sys.stderr.write("scan.pyz needs Python %s or later; this is %s\\n" % (needed, sys.version))
    sys.exit(5)

from buildmatrix.inventory.scan import main

sys.exit(main(sys.argv[1:]))
"""
_PACKAGE = '"""The scan core of buildmatrix."""\n'


def scanner_archive() -> bytes:
    """The bytes of `scan.pyz`, the same wherever and whenever they are made."""
    root = resources.files("buildmatrix")
    sources = {"__main__.py": _MAIN.encode(), "buildmatrix/__init__.py": _PACKAGE.encode()}
    for package in PACKAGES:
        for path, data in _modules(root / package, f"buildmatrix/{package}"):
            sources[path] = data
    buffer = io.BytesIO()
    # Stored: what deflate makes of the same bytes depends on the version of zlib.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(sources):
            archive.writestr(_member(path), sources[path])
    return buffer.getvalue()


def _modules(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    return [
        (f"{prefix}/{entry.name}", entry.read_bytes())
        for entry in folder.iterdir()
        if entry.name.endswith(".py")
    ]


def _member(path: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
    member.create_system = 3  # Unix, also when made elsewhere
    member.external_attr = 0o644 << 16
    return member
