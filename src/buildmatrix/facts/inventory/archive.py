"""The scanner as one file for any Python, so that a scan can run where the layers are.

`python3 scan.pyz ROOT OUTPUT.json` needs only Python 3.10 or later; the exit codes are those of
`facts.inventory.collect`.
"""

from __future__ import annotations

import io
import os
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import BinaryIO

#: Packages in the archive. They import only the standard library (import-linter checks this).
PACKAGES = (
    "facts/trees",
    "facts/elf",
    "facts/binaries",
    "facts/python_imports",
    "facts/inventory",
)
#: First version with slotted dataclasses and `match`.
OLDEST_PYTHON = (3, 10)

# The only module that an older Python must compile. Exit code 5: a component is too old.
_MAIN = f"""\
import sys

if sys.version_info < {OLDEST_PYTHON}:
    needed = "{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]}"
    sys.stderr.write("scan.pyz needs Python %s or later; this is %s\\n" % (needed, sys.version))
    sys.exit(5)

from buildmatrix.facts.inventory.collect import run_scanner

sys.exit(run_scanner(sys.argv[1:]))
"""
_PACKAGE = '"""The scan core of buildmatrix."""\n'


def build_scanner_archive() -> bytes:
    """Return the bytes of `scan.pyz`, identical on every machine and at any time."""
    root = resources.files("buildmatrix")
    sources = {
        "__main__.py": _MAIN.encode(),
        "buildmatrix/__init__.py": _PACKAGE.encode(),
        "buildmatrix/facts/__init__.py": _PACKAGE.encode(),
    }
    for package in PACKAGES:
        for entry in (root / package).iterdir():
            if entry.name.endswith(".py"):
                sources[f"buildmatrix/{package}/{entry.name}"] = entry.read_bytes()
    buffer = io.BytesIO()
    # Stored: the output of deflate depends on the version of zlib.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(sources):
            member = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # Unix, also when made elsewhere
            member.external_attr = 0o644 << 16
            archive.writestr(member, sources[path])
    return buffer.getvalue()


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` never holds a part of it. Raises OSError."""
    with open_atomically(path) as file:
        file.write(data)


@contextmanager
def open_atomically(path: Path, *, is_private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that becomes `path` at the end of the `with`, or nothing. Raises OSError.

    The file has the mode given by the user's umask, or is for this user alone.
    """
    # Not `mkstemp`: only the system applies the umask without reading it, which would mean setting
    # it for all threads.
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, 0o600 if is_private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
