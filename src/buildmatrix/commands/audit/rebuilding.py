"""Fixes that build a distribution from source: looked up, and never tried.

A build runs the code of the package, from an index, on the machine that audits; nothing is built
here. Without a build it is only known whether there is a source at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from packaging.utils import InvalidSdistFilename
from packaging.version import InvalidVersion

from buildmatrix.commands.audit.session import Results
from buildmatrix.errors import UndecidedError
from buildmatrix.locks.machine_indexes import configured
from buildmatrix.locks.model import Package
from buildmatrix.parsing import parse_sdist_name, parse_version
from buildmatrix.rules.model import Finding, Fix, Trial
from buildmatrix.sources.questions import Listing
from buildmatrix.sources.resolved import Resolved

#: `Fix.kind` of those.
KIND = "rebuild"


def look_up(
    findings: Iterable[Finding], results: Results, listing: Listing | None
) -> tuple[Finding, ...]:
    """The findings, with what is known of the sources that their fixes would build.

    `listing` asks an index; None asks none.
    """
    packages = {
        (resolved.target.id, package.name): package
        for resolved in results
        if isinstance(resolved, Resolved)
        for package in resolved.lock.packages
    }
    trials: dict[tuple[str, str], Trial] = {}

    def with_trial(finding: Finding, fix: Fix) -> Finding:
        package = packages.get((finding.target, finding.distribution or ""))
        if package is None:
            return finding
        key = package.name, package.version
        if key not in trials:
            trials[key] = _trial(package, listing)
        return replace(finding, fix=replace(fix, tried=trials[key]))

    return tuple(
        with_trial(finding, finding.fix)
        if finding.fix is not None and finding.fix.kind == KIND and finding.waived is None
        else finding
        for finding in findings
    )


def _trial(package: Package, listing: Listing | None) -> Trial:
    pin = f"{package.name} {package.version}"
    if listing is None:
        return Trial(None, f"whether there is a source of {pin} is not known offline")
    indexes = [package.index] if package.index else [item.url for item in configured(os.environ)]
    failure = ""
    for index in indexes:
        try:
            files = listing(index, package.name)
        except UndecidedError as error:
            failure = error.message
            continue
        source = next(_sources(files, package.version), None)
        if source is not None:
            return Trial(
                None, f"{source} is there, and building it runs its code, which is not done here"
            )
    if failure:
        return Trial(None, f"whether there is a source of {pin} is not known: {failure}")
    return Trial(False, f"there is no source of {pin} on its index")


def _sources(files: Iterable[str], version: str) -> Iterator[str]:
    for name in files:
        try:
            _, parsed = parse_sdist_name(name)
            if parsed.public == parse_version(version).public:
                yield name
        except (InvalidSdistFilename, InvalidVersion):
            continue
