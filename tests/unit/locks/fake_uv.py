"""A uv that takes every requirement line at version 1.0, and keeps what it was asked."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

INDEX = "https://index.test/simple"
#: What it was given: arguments without the scratch folder, and the files in there by their names.
Call = tuple[tuple[str, ...], Mapping[str, str]]


@dataclass
class FakeUv:
    """Stands for `buildmatrix.locks.uv.Uv`."""

    version: str = "0.9.8"
    #: Line on standard error → exit status of every call.
    failure: tuple[str, int] | None = None
    #: The Python that builds.
    python: str | None = None
    calls: list[Call] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def interpreter(self, version: str, folder: Path) -> str | None:
        return self.python

    def run(
        self, arguments: Sequence[str], folder: Path, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        values = dict(argument.partition("=")[::2] for argument in arguments)
        output = Path(values["--output-file"])
        files = {path.name: path.read_text() for path in sorted(output.parent.iterdir())}
        cleaned = tuple(part.replace(str(output.parent), "SCRATCH") for part in arguments)
        with self._lock:
            self.calls.append(((*cleaned, *options), files))
        if self.failure is not None:
            return subprocess.CompletedProcess([], self.failure[1], "", self.failure[0])
        left_out = files.get("excluded.txt", "").split()
        sources = arguments[arguments.index("--") + 1 :]
        asked = {
            line: source
            for source in sources
            if source.endswith((".in", ".txt"))
            for line in (folder / source).read_text().split()
            if line not in left_out
        }
        is_lock = values["--format"] == "pylock.toml"
        entries = [(_package if is_lock else _node)(name, asked[name]) for name in asked]
        head = 'lock-version = "1.0"\n' + ("" if entries else "packages = []\n") if is_lock else ""
        output.write_text(head + "".join(entries))
        return subprocess.CompletedProcess([], 0, "", "")


def _node(name: str, source: str) -> str:
    return f"{name}==1.0\n    # via\n    #   -r {source}\n    # from {INDEX}\n"


def _package(name: str, _: str) -> str:
    file = f"{name}-1.0-py3-none-any.whl"
    wheel = f'name = "{file}", url = "{INDEX}/{file}", hashes = {{ sha256 = "{"0" * 64}" }}'
    return f'[[packages]]\nname = "{name}"\nversion = "1.0"\nwheels = [{{ {wheel} }}]\n'
