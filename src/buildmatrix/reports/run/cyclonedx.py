"""The report as a CycloneDX 1.6 bill of materials (ECMA-424), in JSON.

Each distribution is a component, named by its package URL. What buildmatrix says of it stands in
properties: `buildmatrix:verdict` is the worst verdict, `buildmatrix:verdict:<backend>` that of one
backend. Known vulnerabilities point at the components that they affect.
"""

from __future__ import annotations

import hashlib
import json
import uuid
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from buildmatrix.reports.json_form import TOOL
from buildmatrix.reports.json_form import render as as_json
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import VERDICT_RANK, Finding, Verdict
from buildmatrix.text import printable
from buildmatrix.vulnerabilities.model import Advisory

if TYPE_CHECKING:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component
    from cyclonedx.model.vulnerability import Vulnerability

_SOURCES = {"CVE": "NVD", "GHSA": "GitHub", "PYSEC": "PyPI"}
#: Serial numbers are UUIDs of the report's content: the same report gives the same document.
_NAMESPACE = uuid.UUID("5f7d5a8e-6a0e-5b0c-9a43-6b7f1e6d2c11")


def render(report: Report) -> str:
    """The report as one document; the same report gives the same bytes."""
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output.json import JsonV1Dot6

    tool = Component(type=ComponentType.APPLICATION, name=TOOL, version=report.tool.version)
    bom = Bom(
        serial_number=_serial_number(report),
        components=_components(report),
        vulnerabilities=_vulnerabilities(report.findings),
        metadata=BomMetaData(
            tools=ToolRepository(components=[tool]),
            component=Component(
                type=ComponentType.CONTAINER,
                name=printable(report.subject) or TOOL,
                bom_ref="subject",
                properties=_properties({"catalogue": report.tool.catalogue}),
            ),
        ),
    )
    with warnings.catch_warnings():
        # It misses a graph of dependencies, which a report does not hold.
        warnings.simplefilter("ignore", UserWarning)
        document = json.loads(JsonV1Dot6(bom).output_as_string())
    # What the library says of its own: that nothing depends on anything, which nobody knows here,
    # and the time, which would make two renderings of one report differ.
    document.pop("dependencies", None)
    document["metadata"].pop("timestamp", None)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _serial_number(report: Report) -> uuid.UUID:
    content = as_json(report).encode("utf-8", "backslashreplace")
    return uuid.uuid5(_NAMESPACE, hashlib.sha256(content).hexdigest())


def _components(report: Report) -> list[Component]:
    by_name: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in report.distributions:
        by_name.setdefault((verdict.name, verdict.version), []).append(verdict)
    for finding in report.findings:
        if finding.advisories and finding.distribution and finding.version:
            by_name.setdefault((finding.distribution, finding.version), [])
    return [_component(*key, verdicts) for key, verdicts in sorted(by_name.items())]


def _component(name: str, version: str, verdicts: Iterable[Verdict]) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    verdicts = list(verdicts)
    properties: dict[str, str] = {}
    if verdicts:
        ordered = sorted(verdicts, key=lambda verdict: VERDICT_RANK[verdict.verdict])
        worst = ordered[-1]
        properties["verdict"] = worst.verdict
        properties["reason"] = worst.reason
        properties["foreign-bytes"] = str(max(verdict.foreign_bytes for verdict in verdicts))
        if any(verdict.foreign_at_least for verdict in verdicts):
            properties["foreign-bytes-are"] = "at least"
        properties |= {f"verdict:{verdict.backend}": verdict.verdict for verdict in ordered}
    return Component(
        type=ComponentType.LIBRARY,
        name=printable(name),
        version=printable(version),
        bom_ref=_reference(name, version),
        # A package URL drops slashes around a name, and has none without a name.
        purl=PackageURL("pypi", None, printable(name), printable(version))
        if name.strip("/")
        else None,
        hashes=[
            HashType(alg=HashAlgorithm.SHA_256, content=digest)
            for digest in sorted({verdict.sha256 for verdict in verdicts if verdict.sha256})
        ],
        properties=_properties(properties),
    )


def _vulnerabilities(findings: Iterable[Finding]) -> list[Vulnerability]:
    by_identity: dict[str, tuple[Advisory, list[Finding]]] = {}
    for finding in findings:
        for advisory in finding.advisories:
            by_identity.setdefault(advisory.identity, (advisory, []))[1].append(finding)
    return [_vulnerability(*by_identity[name]) for name in sorted(by_identity)]


def _vulnerability(advisory: Advisory, findings: Iterable[Finding]) -> Vulnerability:
    from cyclonedx.model.impact_analysis import ImpactAnalysisResponse
    from cyclonedx.model.vulnerability import (
        BomTarget,
        Vulnerability,
        VulnerabilityAnalysis,
        VulnerabilityReference,
        VulnerabilitySource,
    )

    findings = list(findings)
    reasons = sorted({finding.waived for finding in findings if finding.waived is not None})
    is_accepted = len(reasons) > 0 and all(finding.waived is not None for finding in findings)
    fixes = sorted(
        {finding.fix.text for finding in findings if finding.fix and finding.fix.is_offered}
    )
    return Vulnerability(
        bom_ref=f"vulnerability:{advisory.identity}",
        id=printable(advisory.id),
        source=VulnerabilitySource(name=_source(advisory.id)),
        references=[
            VulnerabilityReference(
                id=printable(alias), source=VulnerabilitySource(name=_source(alias))
            )
            for alias in advisory.aliases
        ],
        description=printable(advisory.description) or None,
        recommendation="; ".join(map(printable, fixes)) or None,
        affects=[
            BomTarget(ref=reference)
            for reference in sorted(
                {
                    _reference(finding.distribution or "", finding.version or "")
                    for finding in findings
                }
            )
        ],
        analysis=VulnerabilityAnalysis(
            responses=[ImpactAnalysisResponse.WILL_NOT_FIX],
            detail="; ".join(map(printable, reasons)),
        )
        if is_accepted
        else None,
    )


def _source(name: str) -> str:
    return _SOURCES.get(name.partition("-")[0], "OSV")


def _reference(name: str, version: str) -> str:
    return printable(f"pypi:{name}@{version}")


def _properties(values: dict[str, str]) -> list[Property]:
    from cyclonedx.model import Property

    return [
        Property(name=f"{TOOL}:{name}", value=printable(value))
        for name, value in sorted(values.items())
    ]
