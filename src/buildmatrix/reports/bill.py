"""Contents of a report that all bills of materials share."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

from msgspec import Struct

from buildmatrix.base.text import printable
from buildmatrix.facts.inventory.conda import CONDA_PREFIX, PREFIX
from buildmatrix.judge.composition import (
    DistributionBytes,
    NativeComponent,
    SbomComponent,
    SystemComponent,
)
from buildmatrix.judge.model import Advisory, Finding, Verdict
from buildmatrix.judge.registry import rule_of
from buildmatrix.reports import json_form
from buildmatrix.reports.run import Report

_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Name and version of a distribution.
Key = tuple[str, str]


class BillItem(Struct, frozen=True):
    """One distribution, of all targets of a report."""

    name: str
    version: str
    verdicts: tuple[Verdict, ...]
    #: Contents, each file and each component once.
    libraries: tuple[NativeComponent, ...]
    sbom: tuple[SbomComponent, ...]
    #: sha256 of its wheels in hex, sorted.
    hashes: tuple[str, ...]
    #: The requirement lines that name it.
    lines: tuple[str, ...]

    @property
    def key(self) -> Key:
        """Identifying key."""
        return self.name, self.version

    @property
    def reference(self) -> str:
        """Its name within a document."""
        return reference(self.name, self.version)

    @property
    def purl(self) -> str | None:
        """Its package URL; None for a name that has none."""
        return purl(self.name, self.version)


class Vulnerability(Struct, frozen=True):
    """One advisory, and all findings about it."""

    advisory: Advisory
    findings: tuple[Finding, ...]

    @property
    def products(self) -> tuple[Key, ...]:
        """The distributions that it is about."""
        pairs = {(finding.distribution or "", finding.version or "") for finding in self.findings}
        return tuple(sorted(pairs))

    @property
    def accepted(self) -> str:
        """Reasons of acceptance if all of them are accepted, else empty."""
        reasons = {finding.waived for finding in self.findings}
        if None in reasons:
            return ""
        return "; ".join(sorted(printable(reason) for reason in reasons if reason)) or "accepted"

    @property
    def advice(self) -> str:
        """Fixes that resolve them; empty if none is known."""
        fixes = {fix.text for finding in self.findings if (fix := finding.offered_fix)}
        return "; ".join(map(printable, sorted(fixes)))


def document_id(report: Report, namespace: uuid.UUID) -> uuid.UUID:
    """Identifier of a document: the same report gives the same one."""
    content = json_form.render(report).encode("utf-8", "backslashreplace")
    return uuid.uuid5(namespace, hashlib.sha256(content).hexdigest())


def reference(name: str, version: str) -> str:
    """The name of a distribution within a document."""
    return printable(f"{name if ':' in name else f'pypi:{name}'}@{version}")


def purl(name: str, version: str) -> str | None:
    """The package URL of a distribution (purl-spec: PyPI, npm, conda); None for a name without."""
    plain = printable(name).strip("/")
    if not plain:
        return None
    at = f"@{quote(printable(version), safe='.-_~:')}" if version else ""
    if plain.startswith(CONDA_PREFIX):
        # The build would be a qualifier (`?build=`), which is cut like all queries of addresses.
        at = at.partition("%2B")[0]
        return f"pkg:conda/{quote(plain.removeprefix(CONDA_PREFIX), safe='.-_~')}{at}"
    if plain.startswith(PREFIX):
        return f"pkg:npm/{quote(plain.removeprefix(PREFIX), safe='.-_~/')}{at}"
    return f"pkg:pypi/{quote(plain.lower().replace('_', '-'), safe='.-_~')}{at}"


def items(report: Report) -> tuple[BillItem, ...]:
    """The distributions of a report, sorted by name and version."""
    verdicts: dict[Key, list[Verdict]] = {}
    held: dict[Key, list[DistributionBytes]] = {}
    for verdict in report.distributions:
        verdicts.setdefault((verdict.name, verdict.version), []).append(verdict)
    for entry in _entries(report):
        if entry.name:
            held.setdefault((entry.name, entry.version), []).append(entry)
    keys = {*verdicts, *held}
    for finding in report.findings:
        is_alone = finding.advisories or rule_of(finding.rule).unknown == "wheel"
        if is_alone and finding.distribution and finding.version:
            # It may have no verdict: what stopped at the lock, and what has no wheel.
            keys.add((finding.distribution, finding.version))
    return tuple(_item(key, verdicts.get(key, []), held.get(key, [])) for key in sorted(keys))


def loose(report: Report) -> tuple[NativeComponent, ...]:
    """The native components that belong to no distribution."""
    return _libraries(entry for entry in _entries(report) if not entry.name)


def system_components(report: Report) -> tuple[SystemComponent, ...]:
    """The packages of the systems, each once."""
    single = {
        part.purl: part
        for target in report.targets
        if target.composition is not None
        for part in target.composition.system or ()
    }
    return tuple(single[purl] for purl in sorted(single))


def knows_graph(report: Report) -> bool:
    """Return True if the report holds the graph of requirements."""
    return any(target.composition is not None for target in report.targets)


def edges(report: Report) -> Mapping[Key, tuple[Key, ...]]:
    """Return the edges of requirements: distribution → distributions, sorted."""
    required: dict[Key, set[Key]] = {}
    for target in report.targets:
        if target.composition is None:
            continue
        entries = [entry for entry in target.composition.distributions if entry.name]
        versions: dict[str, list[str]] = {}
        for entry in entries:
            versions.setdefault(entry.name, []).append(entry.version)
        for entry in entries:
            for asker in entry.required_by:
                for version in versions.get(asker, ()):
                    required.setdefault((asker, version), set()).add((entry.name, entry.version))
    return {key: tuple(sorted(needs - {key})) for key, needs in sorted(required.items())}


def roots(report: Report) -> tuple[Key, ...]:
    """Return the distributions that a requirement line names or nothing requires, sorted."""
    return tuple(
        sorted(
            {
                (entry.name, entry.version)
                for entry in _entries(report)
                if entry.name and (entry.asker == _label(entry) or not entry.required_by)
            }
        )
    )


def vulnerabilities(report: Report) -> tuple[Vulnerability, ...]:
    """Each advisory of the findings once, sorted by the name that changes least."""
    by_identity: dict[str, tuple[Advisory, list[Finding]]] = {}
    for finding in report.findings:
        for advisory in finding.advisories:
            by_identity.setdefault(advisory.identity, (advisory, []))[1].append(finding)
    return tuple(
        Vulnerability(advisory, tuple(findings))
        for _, (advisory, findings) in sorted(by_identity.items())
    )


def _entries(report: Report) -> Iterator[DistributionBytes]:
    for target in report.targets:
        if target.composition is not None:
            yield from target.composition.distributions


def _item(key: Key, verdicts: Sequence[Verdict], entries: Sequence[DistributionBytes]) -> BillItem:
    return BillItem(
        *key,
        tuple(verdicts),
        _libraries(entries),
        tuple({part.purl: part for entry in entries for part in entry.sbom}.values()),
        tuple(sorted(filter(_SHA256.fullmatch, {item.sha256 or "" for item in verdicts}))),
        tuple(sorted({entry.line for entry in entries if entry.asker == _label(entry)})),
    )


def _label(entry: DistributionBytes) -> str:
    """Return its name in the chain to it: the first link, if a requirement line is."""
    return f"{entry.name} {entry.version}".rstrip()


def _libraries(entries: Iterable[DistributionBytes]) -> tuple[NativeComponent, ...]:
    single = {(part.path, part.vendor): part for entry in entries for part in entry.libraries}
    return tuple(single[key] for key in sorted(single))
