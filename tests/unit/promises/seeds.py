"""Small honest inputs of every kind that `promises` reads: where the fuzzer starts from."""

from __future__ import annotations

import io
import json
import zipfile
from struct import pack

from promises import BETWEEN, PLACES

METADATA = b"Metadata-Version: 2.1\nName: a\nVersion: 1\nRequires-Dist: torch>=2; extra == 'gpu'\n"


def wheels() -> list[bytes]:
    """ZIP archives: deflated, stored, with zip64 sizes, with bytes before and behind."""
    members = {
        "a-1.dist-info/METADATA": METADATA,
        "a-1.data/data/lib/liba.so": b"\x7fELF" + bytes(300),
        "a/__init__.py": b"import ctypes\nctypes.CDLL('libcuda.so.1')\n",
    }
    found = []
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        for large in (False, True):
            file = io.BytesIO()
            with zipfile.ZipFile(file, "w", method) as archive:
                for name, data in members.items():
                    # The date of `ZipInfo` is fixed, so the seeds are the same in each run.
                    info = zipfile.ZipInfo(name)
                    info.compress_type = method
                    force = large and name.endswith(".py")
                    with archive.open(info, "w", force_zip64=force) as member:
                        member.write(data)
                archive.comment = b"comment" if large else b""
            found.append(file.getvalue())
    return [*found, b"#!/bin/sh\n" + found[0], found[0][:-30]]


def pages() -> list[bytes]:
    """Pages of an index."""
    file = {
        "filename": "a-1-py3-none-any.whl",
        "url": "../../packages/a-1-py3-none-any.whl#sha256=" + 64 * "0",
        "hashes": {"sha256": 64 * "0"},
        "size": 1,
        "requires-python": ">=3.8",
        "core-metadata": {"sha256": 64 * "1"},
        "yanked": "no",
    }
    meta = {"api-version": "1.1"}
    return [
        json.dumps({"meta": meta, "name": "a", "files": [file]}).encode(),
        b'<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.0">'
        b'<base href="https://example.com/b/"></head><body><a href="a-1.tar.gz#sha256='
        + 64 * b"0"
        + b'" data-requires-python="&gt;=3.8" data-core-metadata="sha256='
        + 64 * b"1"
        + b'" data-yanked>a-1.tar.gz</a></body></html>',
    ]


def locks() -> list[bytes]:
    """Locks of three tools, and requirements."""
    pylock = """lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "a"
version = "1"
index = "https://example.com/simple"
wheels = [{ url = "https://example.com/a-1-py3-none-any.whl", hashes = { sha256 = "%s" } }]
[tool.buildmatrix]
schema = 1
packages = { a = { via = ["requirements.in:1"] } }
"""
    uv = """version = 1
requires-python = ">=3.11"
[[package]]
name = "root"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "a", marker = "sys_platform == 'linux'" }]
[[package]]
name = "a"
version = "1"
source = { registry = "https://example.com/simple" }
wheels = [{ url = "https://example.com/a-1-py3-none-any.whl", hash = "sha256:%s", size = 1 }]
"""
    poetry = """[[package]]
name = "a"
version = "1"
optional = false
python-versions = ">=3.8"
groups = ["main"]
files = [{file = "a-1-py3-none-any.whl", hash = "sha256:%s"}]
[package.dependencies]
b = {version = ">=1", markers = "python_version < '4'"}
[metadata]
lock-version = "2.1"
python-versions = ">=3.11"
content-hash = "0"
"""
    texts = [text % (64 * "0") for text in (pylock, uv, poetry)]
    texts.append("a==1 \\\n  --hash=sha256:%s  # via b\n-r other.txt\nb @ file:///x\n" % (64 * "0"))
    return [text.encode() for text in texts]


def trees(binary: bytes) -> list[bytes]:
    """Files of an image, one for each of `promises.PLACES`; `binary` is some ELF file."""
    program = (
        b"import ctypes, os\nfrom . import b\n"
        b"try:\n    ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'liba.so.1'))\n"
        b"except OSError as error:\n    raise ImportError from error\n"
    )
    module = b"import torch\ndef f(x):\n    with open(x):\n        return __import__('a.c')\n"
    cache = b"glibc-ld.so.cache1.1" + (1).to_bytes(4, "little") + (12).to_bytes(4, "little")
    cache += bytes(20) + b"\x01\x03\0\0" + b"H\0\0\0" + b"R\0\0\0" + bytes(12)
    cache += b"liba.so.1\0" + b"/lib/x86_64-linux-gnu/liba.so.1\0"
    sbom = b'{"bomFormat":"CycloneDX","components":[{"name":"b","version":"1","purl":"pkg:rpm/b"}]}'
    names = b"a\0" + b"1\0" + b"2\0" + b"liba.so.1\0" + b"/lib/\0\0" + bytes(4)
    tags = ((1000, 6, 0), (1001, 6, 2), (1002, 6, 4), (1117, 8, 6), (1118, 8, 16), (1116, 4, 23))
    header = pack(">II", len(tags), len(names))
    header += b"".join(pack(">IIII", *tag, 1) for tag in tags) + names
    ndb = pack("<4sIII16x", b"RpmP", 0, 1, 1) + pack("<4sIII", b"Slot", 1, 256, 16)
    ndb += pack("<4sIII", b"Slot", 0, 0, 0) * 253
    ndb += pack("<4sIII", b"BlbS", 1, 0, len(header)) + header
    page = b"\1" + header + b"\1key0"
    berkeley = pack("<8xIIIIBBBxII", 0, 0x61561, 9, 512, 0, 8, 0, 0, 1).ljust(512, b"\0")
    entries = pack("<8xIIIHHBBHH", 1, 0, 0, 2, 0, 0, 13, 507, 512 - len(page))
    berkeley += entries.ljust(512 - len(page), b"\0") + page
    parts = {
        "a/__init__.py": program,
        "a/b.py": module,
        "METADATA": METADATA,
        "RECORD": b"a/__init__.py,sha256=0,1\na/b.py,,\na-1.dist-info/RECORD,,\n",
        "WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        "direct_url.json": b'{"url":"https://example.com/a.whl","archive_info":{}}',
        "entry_points.txt": b"[jax_plugins]\na = a.b:f\n",
        "auditwheel.cdx.json": sbom,
        "a.pth": b"import a.b\n/opt/more\n",
        "pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.2\n",
        "etc/ld.so.cache": cache,
        "etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n/opt/lib\n",
        "etc/ld.so.preload": b"liba.so.1\n",
        "ld-musl-x86_64.path": b"/lib:/usr/lib\n",
        "dpkg/status": b"Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\n\n",
        "apk/db/installed": b"P:musl\nV:1.2.5-r0\n\n",
        "os-release": b'ID=debian\nVERSION_ID="12"\n',
        "liba.so.1": binary,
        "Packages.db": ndb,
        "rpm/Packages": berkeley,
    }
    whole = [
        next((part for name, part in parts.items() if place.endswith(name)), b"")
        for place in PLACES
    ]
    alone = [[part if n == m else b"" for m, part in enumerate(whole)] for n in range(len(whole))]
    return [BETWEEN.join(one) for one in (whole, *alone)]
