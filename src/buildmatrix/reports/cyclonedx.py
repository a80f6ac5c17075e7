"""The report as a CycloneDX 1.6 bill of materials (ECMA-424), in JSON.

Each distribution is a component, named by its package URL. Its verdicts are properties:
`buildmatrix:verdict` is the worst verdict, `buildmatrix:verdict:<backend>` that of one backend.
Inside of it lie the vendors' libraries and device code that its bytes show, with what proves them,
and what its own SBOMs name (PEP 770); what one of the two lacks is said. Known vulnerabilities
point at the components that they affect.
"""

from __future__ import annotations

import json
import re
import uuid
import warnings
from decimal import Decimal
from pathlib import PurePosixPath

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.component_evidence import (
    AnalysisTechnique,
    ComponentEvidence,
    Identity,
    IdentityField,
    Method,
    Occurrence,
)
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.impact_analysis import ImpactAnalysisResponse
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.model.tool import ToolRepository
from cyclonedx.model.vulnerability import (
    BomTarget,
    Vulnerability,
    VulnerabilityAnalysis,
    VulnerabilityReference,
    VulnerabilitySource,
)
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from buildmatrix.base.text import printable
from buildmatrix.catalogue.model import Confidence, demangle
from buildmatrix.judge.composition import NativeComponent, SbomComponent, SystemComponent
from buildmatrix.judge.model import VERDICT_RANK
from buildmatrix.reports import bill
from buildmatrix.reports.json_form import TOOL, Json
from buildmatrix.reports.run import Report

_SOURCES = {"CVE": "NVD", "GHSA": "GitHub", "PYSEC": "PyPI"}
_MANGLED = re.compile(r"[-.]([0-9a-f]{8})(?:-[0-9a-f]{8})*\.so\b")
_CONFIDENCE: dict[Confidence, Decimal] = {
    "high": Decimal("0.9"),
    "medium": Decimal("0.6"),
    "low": Decimal("0.3"),
}
#: Serial numbers are UUIDs of the report's content: the same report gives the same document.
_NAMESPACE = uuid.UUID("5f7d5a8e-6a0e-5b0c-9a43-6b7f1e6d2c11")


def render(report: Report) -> str:
    """The report as one document; the same report gives the same bytes."""
    tool = Component(type=ComponentType.APPLICATION, name=TOOL, version=report.tool.version)
    bom = Bom(
        serial_number=bill.document_id(report, _NAMESPACE),
        components=[
            *map(_component, bill.items(report)),
            *(_native("subject", part) for part in bill.loose(report)),
            *map(_make_system_component, bill.system_components(report)),
        ],
        vulnerabilities=map(_vulnerability, bill.vulnerabilities(report)),
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
        # It misses a graph of dependencies, which is added below where the report has one.
        warnings.simplefilter("ignore", UserWarning)
        document = json.loads(JsonV1Dot6(bom).output_as_string())
    # By default the library says that nothing depends on anything, which is unknown of what
    # lies in a distribution, and the time, which would make two renderings of one report differ.
    document.pop("dependencies", None)
    if bill.knows_graph(report):
        document["dependencies"] = _dependencies(report)
    document["metadata"].pop("timestamp", None)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _component(item: bill.BillItem) -> Component:

    properties: dict[str, str] = {}
    if item.verdicts:
        ordered = sorted(item.verdicts, key=lambda verdict: VERDICT_RANK[verdict.verdict])
        worst = ordered[-1]
        properties["verdict"] = worst.verdict
        properties["reason"] = worst.reason
        properties["foreign-bytes"] = str(max(verdict.foreign_bytes for verdict in ordered))
        if any(verdict.foreign_at_least for verdict in ordered):
            properties["foreign-bytes-are"] = "at least"
        properties |= {f"verdict:{verdict.backend}": verdict.verdict for verdict in ordered}
    lacking = [part.purl for part in item.sbom if part.seen is False]
    unnamed = [part.path for part in item.libraries if part.in_sbom is False]
    if lacking:
        properties["sbom:not-seen"] = " ".join(lacking)
    if unnamed:
        properties["sbom:not-named"] = " ".join(unnamed)
    return Component(
        type=ComponentType.LIBRARY,
        name=printable(item.name),
        version=_version(item.version),
        bom_ref=item.reference,
        purl=_purl(item.purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in item.hashes],
        properties=_properties(properties),
        components=[
            *(_native(item.reference, part) for part in item.libraries),
            *(_make_sbom_component(item.reference, part) for part in item.sbom),
        ],
    )


def _native(owner: str, part: NativeComponent) -> Component:
    """Return the component of a vendor inside of a distribution, with its evidence."""
    name = PurePosixPath(part.path).name or part.path
    if "bundled" in part.kinds:
        kind = ComponentType.LIBRARY
        name = part.soname or demangle(name)
    else:
        kind = ComponentType.APPLICATION if "tool" in part.kinds else ComponentType.FILE
    confidence = _CONFIDENCE[part.confidence]
    methods = [
        Method(
            technique=AnalysisTechnique.FILENAME
            if seen in ("bundled", "tool")
            else AnalysisTechnique.BINARY_ANALYSIS,
            confidence=confidence,
            value=seen,
        )
        for seen in part.kinds
    ]
    properties = {
        "role": part.role,
        "seen": " ".join(part.kinds),
        "soname": part.soname,
        "size": str(part.size) if part.size else "",
        "device-code": " ".join(part.architectures),
        "details": "; ".join(part.details),
        "sbom:named": {True: "yes", False: "no", None: ""}[part.in_sbom],
    }
    original = _MANGLED.search(part.path)
    if original is not None:
        # auditwheel puts the start of the original file's sha256 into its name.
        properties["original-sha256-begins"] = original[1]
    return Component(
        type=kind,
        name=printable(name),
        version=_version(part.version) or None,
        bom_ref=printable(f"{owner}/{part.path}#{part.vendor}"),
        supplier=OrganizationalEntity(name=printable(part.vendor)),
        properties=_properties({key: value for key, value in properties.items() if value}),
        evidence=ComponentEvidence(
            identity=[Identity(field=IdentityField.NAME, confidence=confidence, methods=methods)],
            occurrences=[Occurrence(location=printable(part.path))],
        ),
    )


def _make_sbom_component(owner: str, part: SbomComponent) -> Component:
    """A component that an SBOM of the distribution names (PEP 770)."""
    parsed = _purl(part.purl)
    seen = {True: "a library has a name like it", False: "no library has a name like it"}
    properties = {"sbom": "named by the distribution's SBOM"}
    if part.seen is not None:
        properties["sbom:seen"] = seen[part.seen]
    return Component(
        type=ComponentType.LIBRARY,
        name=printable(parsed.name if parsed is not None else part.purl),
        version=_version(parsed.version or "") or None if parsed is not None else None,
        bom_ref=printable(f"{owner}#{part.purl}"),
        purl=parsed,
        properties=_properties(properties),
    )


def _make_system_component(part: SystemComponent) -> Component:
    """A package of the system, as its package manager names it."""
    license = printable(part.license)
    vendor = printable(part.vendor)
    return Component(
        type=ComponentType.LIBRARY,
        name=printable(part.name),
        version=_version(part.version),
        bom_ref=printable(f"system:{part.purl}"),
        purl=_purl(part.purl),
        supplier=OrganizationalEntity(name=vendor) if vendor else None,
        licenses=[DisjunctiveLicense(name=license)] if license else [],
    )


def _purl(text: str | None) -> PackageURL | None:

    if text is None or not text.isprintable():
        return None
    try:
        return PackageURL.from_string(text)
    except ValueError:
        return None


def _version(text: str) -> str:
    """A version as the schema takes it: at most 1,024 characters."""
    return printable(text)[:1024]


def _dependencies(report: Report) -> Json:
    """The graph of distributions; what lies inside of them is not known to depend on anything."""
    required = bill.edges(report)
    refs = {item.key: item.reference for item in bill.items(report)}
    entries: list[tuple[str, list[str]]] = [("subject", [refs[key] for key in bill.roots(report)])]
    entries += [(refs[key], [refs[need] for need in required.get(key, ())]) for key in refs]
    return [
        {"ref": ref, "dependsOn": list[Json](dict.fromkeys(needs))} if needs else {"ref": ref}
        for ref, needs in entries
    ]


def _vulnerability(vulnerability: bill.Vulnerability) -> Vulnerability:

    advisory = vulnerability.advisory
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
        recommendation=vulnerability.advice or None,
        affects=[
            BomTarget(ref=ref)
            for ref in sorted({bill.reference(*key) for key in vulnerability.products})
        ],
        analysis=VulnerabilityAnalysis(
            responses=[ImpactAnalysisResponse.WILL_NOT_FIX], detail=vulnerability.accepted
        )
        if vulnerability.accepted
        else None,
    )


def _source(name: str) -> str:
    return _SOURCES.get(name.partition("-")[0], "OSV")


def _properties(values: dict[str, str]) -> list[Property]:

    return [
        Property(name=f"{TOOL}:{name}", value=printable(value))
        for name, value in sorted(values.items())
    ]
