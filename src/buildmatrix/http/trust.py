"""Certificate settings by server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from buildmatrix.http.addresses import HttpAddress


@dataclass(frozen=True, slots=True)
class Trust:
    """Certificate settings of this machine."""

    #: `HOST` or `HOST:PORT` of servers whose certificates are not verified; `*` for all.
    unchecked: frozenset[str] = frozenset()
    #: Name of a further setting with a certificate file, and that file.
    certificates: tuple[str, str | None] = ("", None)

    #: Folders with one subfolder of certificates per server, named `HOST[:PORT]`.
    folders: tuple[Path, ...] = ()
    #: Certificate authorities for one server, by `HOST[:PORT]`; may grow.
    authorities: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    def own(self, address: HttpAddress) -> tuple[Path, ...]:
        """Return the certificate files of this server, or else its folder."""
        if files := self.authorities.get(address.authority):
            return files
        folders = (folder / address.authority for folder in self.folders)
        return tuple([folder for folder in folders if folder.is_dir()][:1])

    def is_checked(self, address: HttpAddress) -> bool:
        """True if the certificate of this server must be valid."""
        names = {"*", address.host, f"{address.host}:{address.port}"}
        return names.isdisjoint(self.unchecked)
