"""Which servers are taken for who they say they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from buildmatrix.http.addresses import HttpAddress


@dataclass(frozen=True, slots=True)
class Trust:
    """What the settings of this machine say of certificates."""

    #: `HOST` or `HOST:PORT` of servers whose certificates are not checked; `*` for all.
    unchecked: frozenset[str] = frozenset()
    #: What else than the usual variables names a file of certificates, and that file.
    certificates: tuple[str, str | None] = ("", None)

    #: Folders with a folder for each server that has certificates of its own, named `HOST[:PORT]`.
    folders: tuple[Path, ...] = ()

    def own(self, address: HttpAddress) -> Path | None:
        """The folder with certificates for this server alone."""
        folders = (folder / address.authority for folder in self.folders)
        return next((folder for folder in folders if folder.is_dir()), None)

    def is_checked(self, address: HttpAddress) -> bool:
        """Whether the certificate of this server has to be good."""
        names = {"*", address.host, f"{address.host}:{address.port}"}
        return names.isdisjoint(self.unchecked)
