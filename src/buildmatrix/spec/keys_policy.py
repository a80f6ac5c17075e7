"""The keys of `[policy]`: what counts, how much, and up to where."""

# ruff: noqa: RUF009 (`key` makes a field, like `dataclasses.field`; ruff knows only the latter)
from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from buildmatrix.spec import kinds
from buildmatrix.spec.shapes import SourceText, day, either, many, named, text, whole
from buildmatrix.spec.tables import Table, group, key, maybe, row


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreTable(Table):
    """One entry of `ignore` in `[policy.vulnerabilities]`."""

    id: SourceText = key(text(kinds.ADVISORY), "Any of its names: CVE, GHSA or PYSEC.")
    reason: SourceText = key(text(kinds.TEXT), "Why it does not matter here.")
    expires: date = key(day(), "The last day on which that holds.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VulnerabilitiesTable(Table):
    """`[policy.vulnerabilities]`."""

    service: SourceText | None = maybe(
        text(kinds.SERVICE), "Who is asked: `pypi` or `osv`.", default="pypi"
    )
    url: SourceText | None = maybe(
        text(kinds.SOURCE),
        "An OSV service of your own, `https://osv.example.com/v1/query`; with `osv` only.",
    )
    severity: SourceText | None = maybe(
        text(kinds.SEVERITY), "Severity of a known vulnerability.", default="error"
    )
    ignore: tuple[IgnoreTable, ...] = group(
        many(row(IgnoreTable, '{ id = "CVE-2024-22195", reason = "...", expires = 2027-01-31 }')),
        "Advisories that are accepted, until a day.",
    )


#: Budgets by target: an identifier, a pattern, a backend or `*`.
SIZES = named(kinds.TARGETS, text(kinds.SIZE))
#: Lists by backend, or for all of them.
TextsByBackend = dict[str, tuple[SourceText, ...]]
DISTRIBUTIONS = named(kinds.BACKEND, many(text(kinds.DISTRIBUTION_RANGE)), wildcard=True)
LIBRARIES = named(kinds.BACKEND, many(text(kinds.SONAME_GLOB)), wildcard=True)
LICENSES = named(kinds.BACKEND, many(text(kinds.LICENSE)), wildcard=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable(Table):
    """`[policy]`. Keys of its tables are backends, or `*` for all."""

    allow_unresolved: dict[str, tuple[SourceText, ...]] = group(
        named(kinds.BACKEND, many(text(kinds.SONAME_GLOB)), wildcard=True),
        "Sonames (or patterns) that need not be in the image: the host's driver brings them.",
    )
    forbid_env: dict[str, tuple[SourceText, ...]] = group(
        named(kinds.BACKEND, many(text(kinds.VARIABLE_GLOB)), wildcard=True),
        "Patterns of environment variables that an image must not set.",
    )
    max_size: dict[str, SourceText] = group(
        SIZES, "Largest allowed size of the root file system: `3GB` (powers of ten) or `3GiB`."
    )
    max_download: dict[str, SourceText] = group(
        SIZES, "Most bytes that the wheels of a lock may have, to be downloaded."
    )
    max_foreign: dict[str, SourceText] = group(
        SIZES, "Most bytes of other backends that may be installed."
    )
    max_layers: dict[str, int] = group(
        named(kinds.TARGETS, whole(1, 10_000, "20")), "Most layers that an image may have."
    )
    bloat_threshold: SourceText | None = maybe(
        text(kinds.SIZE),
        "Foreign bytes up to which a distribution is not called bloat.",
        default="5MB",
    )
    vulnerabilities: VulnerabilitiesTable = group(
        row(VulnerabilitiesTable), "Who is asked for advisories, and which do not count."
    )
    gates: dict[str, tuple[SourceText, ...]] = group(
        named(kinds.BACKEND, many(text(kinds.GATE)), wildcard=True),
        "Gates that a build must have passed: one that did not run leaves it undecided.",
    )
    allow_distributions: TextsByBackend = group(
        DISTRIBUTIONS, "Distributions that may be there; every other one is an error."
    )
    forbid_distributions: TextsByBackend = group(
        DISTRIBUTIONS, "Distributions that must not be there: `xgboost<3`, `nvidia-*`."
    )
    allow_libraries: TextsByBackend = group(
        LIBRARIES, "Shared libraries that distributions may bring; every other one is an error."
    )
    forbid_libraries: TextsByBackend = group(
        LIBRARIES, "Sonames, or patterns for them, that must not be there."
    )
    allow_licenses: TextsByBackend = group(
        LICENSES, "SPDX identifiers of licenses that are accepted; every other one is an error."
    )
    forbid_licenses: TextsByBackend = group(LICENSES, "SPDX identifiers of licenses that are not.")
    pinned_bases: SourceText | None = maybe(
        text(kinds.PINNED),
        "What base images must have: a `digest`, a `tag` other than `latest`, or `none` of both.",
    )
    severity: dict[str, SourceText | dict[str, SourceText]] = group(
        named(
            kinds.RULE,
            either(
                text(kinds.POLICY_SEVERITY),
                str,
                named(kinds.BACKEND, text(kinds.POLICY_SEVERITY), wildcard=True),
            ),
        ),
        "What findings of a rule count: one severity, or one for each backend; `off` accepts them.",
    )
