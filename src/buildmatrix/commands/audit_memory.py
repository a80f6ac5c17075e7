"""Results of audits, cached by everything that they depend on.

Equal locks, rules and settings give equal findings, so the same audit reads no wheel again and
judges none. Facts of a wheel hold for its address and the hash that its lock claims
(`locks.index.model`), and so do these results: a lock that names a file of this machine, or one
without a hash, has none. Waivers, baselines and advisories depend on the day. Every run applies
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import shown
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.judge.composition import Composition
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.model import AuditTotals, Finding, Verdict
from buildmatrix.locks.index.wheels import local_path
from buildmatrix.locks.model import LockedFile, Package
from buildmatrix.sources.resolved import Resolved
from buildmatrix.sources.wheels_on_index import chosen_wheels

#: Bytes of all entries; that of 100 distributions for four backends has 1 MB.
_LIMIT = 128 << 20


class AuditedTarget(Struct, frozen=True):
    """Results for one target, by the rules alone."""

    #: Those of its lock, with what wheels and source distributions add.
    packages: tuple[Package, ...]
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    totals: AuditTotals
    composition: Composition | None


class Audited(Struct, frozen=True):
    """Results of an audit, in the order of its targets."""

    targets: tuple[AuditedTarget, ...]
    #: Only contains unread files and counts.
    read: Inventory
    #: Number of wheels that were read.
    wheels: int


class AuditMemory:
    """The entry of one audit in a cache; `cache` is None for no cache."""

    def __init__(
        self, cache: Cache | None, resolved: Sequence[Resolved], judge: Judge, *, deep: bool
    ) -> None:
        version = source_digest() if cache is not None and cache.folder is not None else ""
        self._store = (cache or Cache(None)).store(
            "audits", version, limit=_LIMIT, age=30 * DAY, by_use=True, is_shared=False
        )
        self._key = ""
        if self._store.is_enabled and all(map(_is_constant, _files(resolved))):
            # A set has no order.
            parts = [
                (item.target, item.lock, sorted(item.lock.decided), item.stale) for item in resolved
            ]
            data = msgspec.json.encode(
                (parts, judge.basis, deep), enc_hook=str, order="deterministic"
            )
            self._key = hashlib.sha256(data).hexdigest()

    def load(self) -> Audited | None:
        """Return the results of an earlier run; None without any."""
        if not self._key:
            return None
        audited = self._store.load(self._key, msgspec.msgpack.Decoder(prepare_type(Audited)))
        if audited is None:
            return None
        stats = replace(audited.read.stats, bytes_read=0, cached=audited.wheels)
        return replace(audited, read=replace(audited.read, stats=stats))

    def save(self, audited: Audited) -> None:
        """Cache results that only the locks and the rules decided, unless they hold a secret."""
        packages = [package for target in audited.targets for package in target.packages]
        if self._key and all(
            type(package) is Package and not _has_secret(package) for package in packages
        ):
            self._store.save(self._key, audited)


def _has_secret(package: Package) -> bool:
    """Return True if an address of a package has a password or a signature in it."""
    files = [*package.wheels, *([package.sdist] if package.sdist is not None else [])]
    urls = [*(file.url for file in files), package.index or "", package.source]
    return any(shown(url) != url for url in urls)


def _files(resolved: Sequence[Resolved]) -> Iterator[LockedFile]:
    """Yield the files that an audit reads."""
    for item in resolved:
        chosen = chosen_wheels(item)
        yield from chosen.wheels.values()
        for package in item.lock.packages:
            if package.sdist is not None and package.name in chosen.without_wheel:
                yield package.sdist


def _is_constant(file: LockedFile) -> bool:
    return bool(file.sha256) and local_path(file.url) is None
