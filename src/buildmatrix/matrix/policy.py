"""`[policy]` and `[[waive]]` tables: the meaning of their keys together, and contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import cast

from buildmatrix.matrix.checks import check_backend_name
from buildmatrix.matrix.document import Problems, quoted, read
from buildmatrix.matrix.keys import (
    PolicyTable,
    SpecFile,
    TextsByBackend,
    VulnerabilitiesTable,
    WaiverTable,
)
from buildmatrix.matrix.matrix import choose, suggest
from buildmatrix.matrix.model import (
    AcceptedAdvisory,
    Listed,
    Lists,
    Policy,
    PolicySeverity,
    RuleSeverity,
    VulnerabilityPolicy,
    Waiver,
)
from buildmatrix.matrix.settings import build, sound
from buildmatrix.matrix.shapes import SourceText, SpecNode, many
from buildmatrix.matrix.tables import Table, group, row

# `[[waive]]`


class WaiversFile(Table):
    """A file with only waivers."""

    waive: tuple[WaiverTable, ...] = group(many(row(WaiverTable)), "Findings that are accepted.")


def load_waivers(path: Path, ids: Sequence[str] | None) -> tuple[Waiver, ...]:
    """Load the waivers of a file, checked like those of a specification.

    `ids` are the targets: each pattern must match one. None without a specification. Raises
    `SpecError` with all problems of the file.
    """
    problems = Problems(str(path))
    document = read(path, problems, absent="name a file with [[waive]] tables")
    file = row(WaiversFile).read(document.values, SpecNode(document, problems))
    waivers = tuple(build_waiver(waive, ids, (), problems) for waive in file.waive)
    problems.stop()
    return waivers


def build_waiver(
    waive: WaiverTable, ids: Sequence[str] | None, gone: Sequence[str], problems: Problems
) -> Waiver:
    """Build a waiver; note patterns that match none of `ids`. `gone` are excluded identifiers."""
    if ids is not None:
        choose(waive.select, ids, gone, problems)
    return build(Waiver, waive)


# `[policy]`


def build_policy(file: SpecFile, ids: Sequence[str], problems: Problems) -> Policy:
    """Build the policy of a file; note backends and targets that are not among `ids`."""
    table = file.policy
    # Allowed and forbidden names of each kind.
    pairs = [
        (table.allow_distributions, table.forbid_distributions),
        (table.allow_libraries, table.forbid_libraries),
        (table.allow_licenses, table.forbid_licenses),
    ]
    for allowed, forbidden in pairs:
        _check_lists(allowed, forbidden, problems)
    for budget in (table.max_size, table.max_download, table.max_foreign, table.max_layers):
        _check_budget(budget, file, ids, problems)
    by_backend = (table.allow_unresolved, table.forbid_env, table.gates, *chain(*pairs))
    severities = tuple(_severities(table))
    for name, at in (
        *((name, table.at) for mapping in by_backend for name in mapping),
        *((entry.backend, entry.position) for entry in severities),
    ):
        if name != "*":
            check_backend_name(name, at, file, problems)
    allow, forbid = (Lists(*map(_listed, kinds)) for kinds in zip(*pairs, strict=True))
    return build(
        Policy,
        table,
        vulnerabilities=_vulnerabilities(table.vulnerabilities, problems),
        severities=severities,
        allow=allow,
        forbid=forbid,
    )


def _listed(by_backend: TextsByBackend) -> Mapping[str, tuple[Listed, ...]]:
    return {
        name: tuple(Listed(text.value, text.at) for text in sound(texts))
        for name, texts in by_backend.items()
    }


def _check_budget(
    budget: Mapping[str, object], file: SpecFile, ids: Sequence[str], problems: Problems
) -> None:
    """Note keys that name nothing, and overlapping patterns."""
    at = file.policy.at
    first: dict[str, str] = {}
    for key in budget:
        if key in ("*", *file.backend, *ids):
            continue
        if not any(character in key for character in "*?["):
            check_backend_name(key, at, file, problems)
            continue
        matching = [id for id in ids if fnmatchcase(id, key)]
        if not matching:
            message = f"no target matches `{key}`"
            problems.doubt(at, message, suggest(key, ids))
        for id in matching:
            other = first.setdefault(id, key)
            if other != key and id not in budget:
                problems.add(
                    at,
                    f"`{other}` and `{key}` both give {id} a budget",
                    f"write one for `{id}` itself, or patterns that do not overlap",
                    mistake=f"{other} {key}",
                )


def _check_lists(allowed: TextsByBackend, forbidden: TextsByBackend, problems: Problems) -> None:
    """Note names that are both forbidden and allowed for a backend or for all."""
    for name, texts in allowed.items():
        for key in dict.fromkeys(("*", name)):
            places = {text.value: text.at for text in sound(forbidden.get(key, ()))}
            for text in sound(texts):
                if text.value in places:
                    problems.add(
                        text.at,
                        f"{quoted(text.value)} is allowed here, but forbidden in line "
                        f"{places[text.value].line}",
                        "keep one of the two",
                    )


def _severities(table: PolicyTable) -> Iterator[RuleSeverity]:
    for rule, said in table.severity.items():
        texts = {"*": said} if isinstance(said, SourceText) else said
        for backend, text in texts.items():
            if text.sound:
                severity = cast(PolicySeverity, text.value)  # `kinds` lets nothing else through
                yield RuleSeverity(rule, backend, severity, text.at)


def _vulnerabilities(table: VulnerabilitiesTable, problems: Problems) -> VulnerabilityPolicy:
    is_osv = table.service is not None and table.service.value == "osv"
    if table.url is not None and not is_osv:
        hint = 'write `service = "osv"` too'
        problems.doubt(table.url.at, "only an OSV service has a `url`", hint)
    return build(
        VulnerabilityPolicy,
        table,
        ignore=tuple(build(AcceptedAdvisory, entry) for entry in table.ignore),
    )
