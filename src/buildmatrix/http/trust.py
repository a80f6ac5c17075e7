"""Which servers are taken for who they say they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    #: Files with authorities for one server alone, by `HOST[:PORT]`; may grow.
    authorities: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    def own(self, address: HttpAddress) -> tuple[Path, ...]:
        """What there is for this server alone: files of authorities, and else a folder."""
        if files := self.authorities.get(address.authority):
            return files
        folders = (folder / address.authority for folder in self.folders)
        return tuple([folder for folder in folders if folder.is_dir()][:1])

    def is_checked(self, address: HttpAddress) -> bool:
        """Whether the certificate of this server has to be good."""
        names = {"*", address.host, f"{address.host}:{address.port}"}
        return names.isdisjoint(self.unchecked)
