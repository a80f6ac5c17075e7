"""A registry that is a file in the working folder, between the commands of a case.

What a case file writes into `registry.json`: `{"fails_at_write": 2}` fails at that write of tags,
counted from 0.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path

import msgspec
from memory_registry import MemoryRegistry

from buildmatrix.images.documents import Descriptor
from buildmatrix.net.addresses import RequestError
from buildmatrix.net.registry_mirrors import Reference

_FILE = ".fake-registry.json"
_SETTINGS = "registry.json"


class FileRegistry(MemoryRegistry):
    """What is pushed stays when it is closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / _FILE
        settings = folder / _SETTINGS
        self._fails_at = (
            json.loads(settings.read_text())["fails_at_write"] if settings.exists() else None
        )
        if self._file.exists():
            held = json.loads(self._file.read_text())
            self.tags = {_key(name): digest for name, digest in held["tags"].items()}
            self.manifests = {_key(k): b64decode(data) for k, data in held["manifests"].items()}
            self.blobs = {_key(k): b64decode(data) for k, data in held["blobs"].items()}
            self.listed = {
                digest: [msgspec.convert(entry, Descriptor) for entry in entries]
                for digest, entries in held["listed"].items()
            }
        self.fails = self._fail

    def _fail(self, name: str, reference: Reference) -> None:
        writes = sum(
            request.startswith("push_manifest") and "@" not in request and ".att" not in request
            for request in self.asked
        )
        if name == "push_manifest" and writes - 1 == self._fails_at and reference.tag:
            raise RequestError("the registry answers 500", status=500)

    def close(self) -> None:
        held = {
            "tags": {" ".join(key): digest for key, digest in self.tags.items()},
            "manifests": {" ".join(k): b64encode(d).decode() for k, d in self.manifests.items()},
            "blobs": {" ".join(k): b64encode(d).decode() for k, d in self.blobs.items()},
            "listed": {k: msgspec.to_builtins(entries) for k, entries in self.listed.items()},
        }
        self._file.write_text(json.dumps(held))

    def __exit__(self, *error: object) -> None:
        self.close()


def _key(text: str) -> tuple[str, str]:
    first, second = text.split(" ")
    return first, second
