"""Sums of each vendor's files by role."""

from __future__ import annotations

from collections.abc import Iterable

from buildmatrix.catalogue.match import PACKAGE_ROLE
from buildmatrix.catalogue.model import Evidence
from buildmatrix.reports.inspect import Share

#: Evidence of a vendor's file, or part of one; the other kinds only refer to something.
_HOLDS = ("bundled", "tool", "device-code", "static")


def sum_shares(evidence: Iterable[Evidence]) -> tuple[Share, ...]:
    """Sum each vendor's files by role; the bytes of a file count once per vendor.

    A file that belongs to the vendor as a whole counts as that, not for its device code.
    """
    order = {kind: number for number, kind in enumerate(_HOLDS)}
    groups: dict[tuple[str, str, str], list[Evidence]] = {}
    homes: dict[tuple[str, str], str] = {}
    for item in sorted(
        (item for item in evidence if item.kind in order and item.role != PACKAGE_ROLE),
        key=lambda item: order[item.kind],
    ):
        # Statically linked code has no size of its own, so it is listed separately.
        role = item.role
        if item.kind != "static":
            role = homes.setdefault((item.vendor, item.path), role)
        groups.setdefault((item.vendor, item.backend, role), []).append(item)
    shares = []
    for (vendor, backend, role), items in groups.items():
        sizes: dict[str, int] = {}
        for item in items:
            sizes.setdefault(item.path, item.size)
        architectures = {name for item in items for name in item.architectures}
        shares.append(
            Share(vendor, backend, role, sum(sizes.values()), len(sizes),
                  tuple(sorted(architectures)))
        )  # fmt: skip
    return tuple(
        sorted(shares, key=lambda share: (-share.size, share.vendor, share.backend, share.role))
    )
