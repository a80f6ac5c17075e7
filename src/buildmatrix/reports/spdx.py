"""The report as an SPDX 3.0.1 document, in JSON-LD (https://spdx.github.io/spdx-spec/v3.0.1).

Packages are the subject, its distributions, and what SBOMs of distributions name; files are native
components. Requirements, containment and the targets of known vulnerabilities are
relationships. SPDX asks for the time of creation.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import quote

from msgspec import Struct, field

from buildmatrix.base.text import printable
from buildmatrix.judge.composition import NativeComponent, SystemComponent
from buildmatrix.reports import bill
from buildmatrix.reports.json_form import TOOL, Json, dumps
from buildmatrix.reports.run import Report

_CONTEXT = "https://spdx.org/rdf/3.0.1/spdx-context.jsonld"
_CREATION = "_:creationinfo"
#: Documents are named by what they say: the same report gives the same names.
_NAMESPACE = uuid.UUID("0c6b4f0e-5b0c-5d5e-8f77-3b9d2f1c8a60")


def render(report: Report, *, time: datetime | None = None) -> str:
    """The report as one document; `time` is when it was made."""
    graph = _Graph(f"urn:uuid:{bill.document_id(report, _NAMESPACE)}#")
    when = (time or datetime.fromtimestamp(0, UTC)).astimezone(UTC)
    agent = graph.id("agent", TOOL)
    creation: Json = {
        "type": "CreationInfo",
        "@id": _CREATION,
        "specVersion": "3.0.1",
        "created": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "createdBy": [agent],
    }
    graph.add("SoftwareAgent", agent, name=f"{TOOL} {report.tool.version}")
    subject = graph.add(
        "software_Package",
        graph.id("subject"),
        name=report.subject or TOOL,
        software_primaryPurpose="container",
        comment=f"judged by the catalogue of {report.tool.catalogue}",
    )
    _packages(graph, report, subject)
    _vulnerabilities(graph, report, agent)
    profiles = ["core", "software", *(["security"] if graph.has_vulnerabilities else [])]
    elements: list[Json] = [element["spdxId"] for element in graph.elements]
    sbom = graph.add(
        "software_Sbom",
        graph.id("sbom"),
        rootElement=[subject],
        element=list(elements),
        profileConformance=list[Json](profiles),
        software_sbomType=["analyzed"],
    )
    graph.add(
        "SpdxDocument",
        graph.id("document"),
        name=report.subject or TOOL,
        rootElement=[sbom],
        element=[*elements, sbom],
        profileConformance=list[Json](profiles),
    )
    return dumps({"@context": _CONTEXT, "@graph": [creation, *graph.elements]})


class _Graph(Struct):
    """The elements of one document, each with a name of its own."""

    prefix: str
    elements: list[dict[str, Json]] = field(default_factory=list)
    vendors: dict[str, str] = field(default_factory=dict)
    has_vulnerabilities: bool = False

    def id(self, *parts: str) -> str:
        """The IRI of an element."""
        return self.prefix + "/".join(quote(printable(part), safe="") for part in parts)

    def add(self, kind: str, id: str, **properties: Json) -> str:
        """One more element; empty properties are left out, texts are made fit to be shown."""
        form: dict[str, Json] = {"type": kind, "spdxId": id, "creationInfo": _CREATION}
        for key, value in properties.items():
            if value not in ("", None, []):
                form[key] = printable(value) if isinstance(value, str) else value
        self.elements.append(form)
        return id

    def relate(self, source: str, kind: str, targets: Iterable[str], completeness: str) -> None:
        """One relationship; none where it leads nowhere."""
        ends: list[Json] = [*dict.fromkeys(targets)]
        if ends:
            self.add(
                "Relationship",
                f"{source}/{kind}",
                relationshipType=kind,
                to=ends,
                completeness=completeness,
                **{"from": source},
            )

    def vendor(self, name: str) -> str:
        """The organization that a vendor is."""
        if name not in self.vendors:
            self.vendors[name] = self.add("Organization", self.id("vendor", name), name=name or "-")
        return self.vendors[name]


def _packages(graph: _Graph, report: Report, subject: str) -> None:
    items = bill.items(report)
    ids = {item.key: graph.id("distribution", item.name, item.version) for item in items}
    for item in items:
        _distribution(graph, item, ids[item.key])
    loose = [_native(graph, subject, part) for part in bill.loose(report)]
    system = [_make_system_package(graph, part) for part in bill.system_components(report)]
    graph.relate(subject, "contains", [*ids.values(), *loose, *system], "incomplete")
    if bill.knows_graph(report):
        graph.relate(subject, "dependsOn", (ids[key] for key in bill.roots(report)), "complete")
        for key, needs in bill.edges(report).items():
            graph.relate(ids[key], "dependsOn", (ids[need] for need in needs), "complete")


def _distribution(graph: _Graph, item: bill.BillItem, id: str) -> None:
    verdicts = {
        verdict.backend: f"{verdict.verdict} on {verdict.backend}: {verdict.reason}"
        for verdict in item.verdicts
    }
    hashes: list[Json] = [
        {"type": "Hash", "algorithm": "sha256", "hashValue": digest} for digest in item.hashes
    ]
    graph.add(
        "software_Package",
        id,
        name=item.name or "-",
        software_packageVersion=item.version,
        software_packageUrl=item.purl,
        software_primaryPurpose="library",
        verifiedUsing=hashes,
        comment="; ".join(verdicts[backend] for backend in sorted(verdicts)),
    )
    inside = [_native(graph, id, part) for part in item.libraries]
    for part in item.sbom:
        inside.append(
            graph.add(
                "software_Package",
                f"{id}/sbom/{quote(printable(part.purl), safe='')}",
                name=part.purl.partition("?")[0].rstrip("/").rpartition("/")[2] or "-",
                software_packageUrl=_fitting_purl(part.purl),
                comment="named by the SBOM of the distribution"
                + ("; no library has a name like it" if part.seen is False else ""),
            )
        )
    graph.relate(id, "contains", inside, "incomplete")


def _make_system_package(graph: _Graph, part: SystemComponent) -> str:
    """A package of the system, as its package manager names it."""
    return graph.add(
        "software_Package",
        graph.id("system", part.purl),
        name=part.name or "-",
        software_packageVersion=part.version,
        software_packageUrl=_fitting_purl(part.purl),
        suppliedBy=graph.vendor(part.vendor) if part.vendor else None,
        comment=f"license: {part.license}" if part.license else "",
    )


def _fitting_purl(purl: str) -> str:
    """Return a package URL as the schema takes it; empty for any other."""
    return purl if re.fullmatch(r"pkg:[A-Za-z0-9.+-]+/[!-~]+", purl) is not None else ""


def _native(graph: _Graph, owner: str, part: NativeComponent) -> str:
    said = [
        f"seen: {' '.join(part.kinds)}",
        f"role: {part.role}",
        f"soname: {part.soname}" if part.soname else "",
        f"version: {part.version}" if part.version else "",
        f"device code: {' '.join(part.architectures)}" if part.architectures else "",
        "no SBOM of the distribution names it" if part.in_sbom is False else "",
    ]
    place = "/".join(quote(printable(name), safe="") for name in (part.path, part.vendor))
    return graph.add(
        "software_File",
        f"{owner}/file/{place}",
        name=part.path or "-",
        software_primaryPurpose="library" if "bundled" in part.kinds else "file",
        software_fileKind="file",
        suppliedBy=graph.vendor(part.vendor),
        comment="; ".join(filter(None, said)),
    )


def _vulnerabilities(graph: _Graph, report: Report, agent: str) -> None:
    for vulnerability in bill.vulnerabilities(report):
        advisory = vulnerability.advisory
        graph.has_vulnerabilities = True
        names = dict.fromkeys((advisory.identity, advisory.id, *advisory.aliases))
        identifiers: list[Json] = [
            {
                "type": "ExternalIdentifier",
                "externalIdentifierType": "cve" if name.startswith("CVE-") else "securityOther",
                "identifier": printable(name) or "-",
            }
            for name in names
        ]
        id = graph.add(
            "security_Vulnerability",
            graph.id("vulnerability", advisory.identity),
            name=advisory.identity,
            description=advisory.description,
            externalIdentifier=identifiers,
        )
        products: list[Json] = [graph.id("distribution", *key) for key in vulnerability.products]
        advice = vulnerability.advice or "no version without it is known"
        graph.add(
            "security_VexAffectedVulnAssessmentRelationship",
            f"{id}/affects",
            relationshipType="affects",
            to=products,
            suppliedBy=agent,
            security_actionStatement=f"accepted: {vulnerability.accepted}"
            if vulnerability.accepted
            else advice,
            **{"from": id},
        )
