"""Known vulnerabilities as an OpenVEX 0.2.0 document (https://github.com/openvex/spec).

One statement per advisory, distribution and status. What a lock has and its image lacks is
`not_affected`, as it is not there; everything else is `affected`, with what to do. A waiver says
that somebody accepted a finding, and proves nothing: it stays `affected`, and the reason is the
action, unless the reason begins with one of OpenVEX's justifications. OpenVEX asks for a time, and
for a statement: about a report without vulnerabilities there is no document.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

from buildmatrix.errors import NoDocumentError
from buildmatrix.reports.json_form import TOOL, Json, dumps
from buildmatrix.reports.run import bill
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import Finding, TargetResult
from buildmatrix.text import printable

_CONTEXT = "https://openvex.dev/ns/v0.2.0"
#: What somebody who accepts a finding may begin the reason with: he vouches for it.
_JUSTIFIED = re.compile(
    r"(component_not_present|vulnerable_code_not_present|vulnerable_code_not_in_execute_path"
    r"|vulnerable_code_cannot_be_controlled_by_adversary|inline_mitigations_already_exist)"
    r"(?![a-z_])[\s:;,.-]*(.*)",
    re.DOTALL,
)
#: Documents are named by what they say.
_NAMESPACE = uuid.UUID("f1c7a1f6-33a9-5a4f-9d68-6b6d1b9f4a11")


def render(report: Report, *, time: datetime | None = None) -> str:
    """The report as one document; `time` is when it was issued.

    Raises `NoDocumentError` where there is nothing to state.
    """
    statements: list[Json] = [
        form
        for vulnerability in bill.vulnerabilities(report)
        for form in _statements(report, vulnerability)
    ]
    if not statements:
        raise NoDocumentError(
            "OpenVEX has no document without a statement, and this report has no known "
            "vulnerability to make one about"
        )
    content = hashlib.sha256(dumps(statements).encode("utf-8", "backslashreplace")).hexdigest()
    when = (time or datetime.fromtimestamp(0, UTC)).astimezone(UTC)
    return dumps(
        {
            "@context": _CONTEXT,
            "@id": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}",
            "author": TOOL,
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "version": 1,
            "tooling": printable(f"{TOOL}/{report.tool.version}"),
            "statements": statements,
        }
    )


def _statements(report: Report, vulnerability: bill.Vulnerability) -> Iterator[Json]:
    advisory = vulnerability.advisory
    aliases = [name for name in (advisory.id, *advisory.aliases) if name != advisory.identity]
    name_form: dict[str, Json] = {"name": printable(advisory.identity)}
    if advisory.description:
        name_form["description"] = printable(advisory.description)
    if aliases:
        name_form["aliases"] = [printable(name) for name in dict.fromkeys(aliases)]
    by_words: dict[tuple[tuple[str, str], ...], list[Json]] = {}
    for finding in vulnerability.findings:
        targets: list[TargetResult | None] = [
            target for target in report.targets if finding.is_about(target.id)
        ]
        for target in targets or [None]:
            product = _product(target, report, finding)
            products = by_words.setdefault(tuple(_words(finding, target).items()), [])
            if product not in products:
                products.append(product)
    for words, products in by_words.items():
        yield {"vulnerability": name_form, "products": products, **dict(words)}


def _words(finding: Finding, target: TargetResult | None) -> dict[str, str]:
    """Status of a statement, and what the status asks for."""
    if target is not None and _is_absent(finding, target):
        return {
            "status": "not_affected",
            "justification": "component_not_present",
            "impact_statement": printable(
                f"{finding.label} is locked for {target.id}, and its image does not hold it"
            ),
        }
    if justified := _JUSTIFIED.match(finding.waived or ""):
        return {
            "status": "not_affected",
            "justification": justified[1],
            "impact_statement": printable(justified[2]) or justified[1],
        }
    if finding.waived is not None:
        return {"status": "affected", "action_statement": printable(f"accepted: {finding.waived}")}
    fix = finding.offered_fix
    text = fix.text if fix is not None else "no version without it is known"
    return {"status": "affected", "action_statement": printable(text)}


def _is_absent(finding: Finding, target: TargetResult) -> bool:
    """Whether the image of a target was read, and holds no such distribution."""
    is_read = target.gates.get("scan") in ("passed", "failed") and target.composition is not None
    if not is_read or target.composition is None:
        return False
    present = {part.name for part in target.composition.distributions}
    return all(name not in present for name in finding.distributions)


def _product(target: TargetResult | None, report: Report, finding: Finding) -> Json:
    """The image of a target, or what was audited, with the distribution in it."""
    name, version = finding.distribution or "", finding.version or ""
    part = bill.purl(name, version)
    if part is None:
        component: dict[str, Json] = {"@id": f"urn:{TOOL}:{quote(bill.reference(name, version))}"}
    else:
        component = {"@id": part, "identifiers": {"purl": part}}
    if target is None:
        subject = quote(printable(report.subject), safe="")
        return {"@id": f"urn:{TOOL}:{subject or '-'}", "subcomponents": [component]}
    image = _image(target)
    if image is None:
        id = f"urn:{TOOL}:{quote(printable(target.id), safe='') or '-'}"
        return {"@id": id, "subcomponents": [component]}
    return {"@id": image, "identifiers": {"purl": image}, "subcomponents": [component]}


def _image(target: TargetResult) -> str | None:
    """The package URL of an image (purl-spec: OCI); None where it has no digest."""
    digest = target.staged.digest if target.staged is not None else target.digest
    repository = target.staged.repository if target.staged is not None else target.image
    if not digest or not repository:
        return None
    # A tag follows the last colon behind the last slash.
    folder, slash, last = printable(repository).partition("@")[0].rpartition("/")
    name = last.partition(":")[0].lower()
    if not name:
        return None
    place = quote(f"{folder}{slash}{last.partition(':')[0]}", safe="/")
    where = f"?repository_url={place}" if folder else ""
    return f"pkg:oci/{quote(name, safe='')}@{quote(printable(digest), safe='')}{where}"
