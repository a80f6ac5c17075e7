"""`[policy]` → `Policy`: what its keys mean together, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from buildmatrix.spec import kinds
from buildmatrix.spec.checks import check_backend_name
from buildmatrix.spec.document import Problems
from buildmatrix.spec.keys import SpecFile
from buildmatrix.spec.keys_policy import PolicyTable, VulnerabilitiesTable
from buildmatrix.spec.layers import value, values
from buildmatrix.spec.model import (
    AcceptedAdvisory,
    PinnedBases,
    Policy,
    PolicySeverity,
    RuleSeverity,
    Severity,
    VulnerabilityPolicy,
)
from buildmatrix.spec.shapes import SourceText

_SEVERITIES: Mapping[str, Severity] = {
    "": "error",
    "error": "error",
    "warning": "warning",
    "note": "note",
}
_PINNED: Mapping[str, PinnedBases] = {"digest": "digest", "tag": "tag", "none": "none"}
_POLICY_SEVERITIES: Mapping[str, PolicySeverity] = {**_SEVERITIES, "off": "off"}


def checked_policy(file: SpecFile, problems: Problems) -> Policy:
    """The policy of a file; backends that it does not describe are problems."""
    table = file.policy
    for mapping in (table.allow_unresolved, table.forbid_env, table.max_size, table.gates):
        for name in mapping:
            if name != "*":
                check_backend_name(name, table.at, file, problems)
    severities = tuple(_severities(table))
    for entry in severities:
        if entry.backend != "*":
            check_backend_name(entry.backend, entry.position, file, problems)
    return Policy(
        allow_unresolved={name: values(texts) for name, texts in table.allow_unresolved.items()},
        forbid_env={name: values(texts) for name, texts in table.forbid_env.items()},
        max_size={name: kinds.size(text.value) for name, text in table.max_size.items()},
        bloat_threshold=(
            kinds.size(table.bloat_threshold.value)
            if table.bloat_threshold
            else Policy().bloat_threshold
        ),
        vulnerabilities=_vulnerabilities(table.vulnerabilities, problems),
        severities=severities,
        gates={name: values(texts) for name, texts in table.gates.items()},
        pinned_bases=_PINNED.get(value(table.pinned_bases)),
    )


def _severities(table: PolicyTable) -> Iterator[RuleSeverity]:
    for rule, said in table.severity.items():
        texts = {"*": said} if isinstance(said, SourceText) else said
        for backend, text in texts.items():
            if text.sound:
                yield RuleSeverity(rule, backend, _POLICY_SEVERITIES[text.value], text.at)


def _vulnerabilities(table: VulnerabilitiesTable, problems: Problems) -> VulnerabilityPolicy:
    is_osv = table.service is not None and table.service.value == "osv"
    if table.url is not None and not is_osv:
        hint = 'write `service = "osv"` too'
        problems.add(table.url.at, "only an OSV service has a `url`", hint, doubtful=True)
    return VulnerabilityPolicy(
        service="osv" if is_osv else "pypi",
        url=table.url.value if table.url else None,
        severity=_SEVERITIES[table.severity.value if table.severity else ""],
        ignore=tuple(
            AcceptedAdvisory(entry.id.value, entry.reason.value, entry.expires, entry.at)
            for entry in table.ignore
        ),
    )
