"""What real wheels say of device code and versions, kept small: `wheel_records.json`.

A wheel of 700 MB is too large for every run. What was read of it once is kept here; unit tests hold
the verdicts about it, and integration tests read the small wheels from their index again.

`python tests/corpus/wheel_records.py NAME==VERSION[@PYTHON]...` reads wheels and writes them down.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from buildmatrix.base.text import PYPI
from buildmatrix.facts.elf.model import CodeGroup, DeviceCode, Elf, Mark
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory, Statements
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.model import WheelFacts
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Wheel

FILE = Path(__file__).with_name("wheel_records.json")
#: Files beside those with device code that matter for drivers and libraries.
_WORDS = ("cudart", "cudnn", "amdhip", "ascendcl")

Record = dict[str, Any]


def read_records() -> dict[str, Record]:
    """`NAME==VERSION` -> what was written down."""
    records: dict[str, Record] = json.loads(FILE.read_text())
    return records


def read_wheel(client: Client, filename: str) -> WheelFacts:
    """A wheel, read on its index to its end, without a copy of it."""
    name = parse_wheel_filename(filename)[0]
    (file,) = (file for file in client.project(PYPI, name) if file.filename == filename)
    return WheelReader(client, Cache(None)).read(Wheel(filename, file.url, ""), "whole")


def record(facts: WheelFacts) -> Record:
    """What is written down of a wheel."""
    files = list(_files(facts.inventory))
    own = {_name(binary) for binary in files}
    return {
        "filename": facts.filename,
        "sha256": facts.sha256,
        "statements": {
            statements.path: {name: list(texts) for name, texts in statements.values.items()}
            for statements in facts.inventory.statements
        },
        "files": {binary.path: _file(binary, own) for binary in files},
    }


def inventory(name: str, written: Record) -> Inventory:
    """The facts that a record stands for."""
    distribution, _, version = name.partition("==")
    return Inventory(
        distributions=(Distribution(distribution, version, f"{name}.dist-info"),),
        binaries=tuple(_binary(path, file, name) for path, file in written["files"].items()),
        statements=tuple(
            Statements(path, {key: tuple(texts) for key, texts in values.items()}, name)
            for path, values in written["statements"].items()
        ),
    )


def _files(facts: Inventory) -> Iterator[Binary]:
    """Files with device code, those that drivers and libraries show in, and what loads them."""
    wanted = {binary.path for binary in facts.binaries if _matters(binary)}
    while True:
        names = {_name(binary) for binary in facts.binaries if binary.path in wanted}
        further = {
            binary.path
            for binary in facts.binaries
            if binary.reach in ("import", "unknown") and not names.isdisjoint(binary.elf.needed)
        }
        if further <= wanted:
            break
        wanted |= further
    return (binary for binary in facts.binaries if binary.path in wanted)


def _matters(binary: Binary) -> bool:
    elf = binary.elf
    names = (elf.soname or "", *(mark.name for mark in elf.marks))
    return bool(elf.device_code) or any(word in name for name in names for word in _WORDS)


def _name(binary: Binary) -> str:
    return binary.elf.soname or binary.path.rpartition("/")[2]


def _file(binary: Binary, own: Collection[str]) -> Record:
    elf = binary.elf
    return {
        "size": binary.size,
        "reach": binary.reach,
        "soname": elf.soname,
        "needed": [
            name for name in elf.needed if name in own or any(word in name for word in _WORDS)
        ],
        "folders": [folder for folder in (*elf.rpath, *elf.runpath) if "nvidia" not in folder],
        "marks": [mark.name for mark in elf.marks],
        "codes": [
            [code.format, code.kind, code.arch, code.count, code.size, code.language]
            for code in elf.device_code
        ],
        "objects": [
            [group.format, list(group.architectures), group.count, group.size, group.is_relocatable]
            for group in elf.code_groups
        ],
    }


def _binary(path: str, file: Record, owner: str) -> Binary:
    elf = Elf(
        64,
        True,
        "x86_64",
        "dyn",
        soname=file["soname"],
        needed=tuple(file["needed"]),
        rpath=tuple(file["folders"]),
        marks=tuple(Mark(name, 0) for name in file["marks"]),
        device_code=tuple(
            DeviceCode(format, kind, arch, count, size, 0, language=language)
            for format, kind, arch, count, size, language in file["codes"]
        ),
        code_groups=tuple(
            CodeGroup(format, tuple(archs), count, size, 0, is_relocatable=is_relocatable)
            for format, archs, count, size, is_relocatable in file["objects"]
        ),
    )
    return Binary(path, file["size"], elf, owner, reach=file["reach"])


def _chosen(client: Client, name: str, version: str, python: str) -> str:
    """The wheel for Linux on x86-64, and for a Python where it has several."""
    fitting: dict[str, set[str]] = {}
    for file in client.project(PYPI, name):
        if file.filename.endswith(".whl"):
            _, number, _, tags = parse_wheel_filename(file.filename)
            platforms = {tag.platform for tag in tags}
            if str(number) == version and any(
                "linux" in text and "x86_64" in text for text in platforms
            ):
                fitting[file.filename] = {tag.interpreter for tag in tags}
    return next((name for name, pythons in fitting.items() if python in pythons), min(fitting))


def main() -> None:
    """Write the wheels that are named on the command line down."""
    records = read_records() if FILE.exists() else {}
    client = Client()
    for argument in sys.argv[1:]:
        name, _, python = argument.partition("@")
        filename = _chosen(client, *name.split("=="), python or "cp311")
        records[name] = record(read_wheel(client, filename))
        print(name, filename, flush=True)
        lines = (f'"{name}": {json.dumps(item)}' for name, item in sorted(records.items()))
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
