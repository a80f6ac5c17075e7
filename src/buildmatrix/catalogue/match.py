"""Facts of an inventory and entries of the catalogue → evidence.

No vendor is named in this package: the data files have all differences. Neutral entries make no
evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from buildmatrix.catalogue.files import FileMatcher
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution, toolkit_in
from buildmatrix.catalogue.model import Evidence, matches_any
from buildmatrix.facts.inventory.model import Distribution, Inventory, SystemPackage

#: Role of evidence for a whole package, of Python or of the system.
PACKAGE_ROLE = "package"
ENVIRONMENT_ROLE = "environment"
#: Characters of an environment variable's value to show; PATH can be long.
SHOWN_VALUE = 200


def evidence(inventory: Inventory, catalogue: Catalogue) -> tuple[Evidence, ...]:
    """Return all evidence in `inventory`, ordered by path.

    `Evidence.distribution` is None for files that no distribution owns, such as those of a base
    image. `Evidence.size` is the file's for `bundled` and `tool`, and that of the code for
    `device-code`; one file can give evidence of several kinds, so their sizes must not be added up.
    """
    files = FileMatcher(catalogue)
    items = [
        *_distributions(inventory.distributions, catalogue),
        *_system_packages(inventory.system_packages, catalogue),
        *_environment(inventory.environment, catalogue),
        *(item for binary in inventory.binaries for item in files.binary(binary)),
        *(item for artefact in inventory.artefacts for item in files.artefact(artefact)),
        *(
            item
            for file in inventory.closed
            if file.by == "bytes" or (file.by == "name" and not file.path.endswith(".py"))
            for item in files.closed(file)
        ),
        *(item for load in inventory.python_loads for item in files.python_load(load)),
    ]
    items.sort(key=lambda item: (item.path, item.kind, item.backend, item.detail))
    return tuple(items)


def _distributions(
    distributions: Iterable[Distribution], catalogue: Catalogue
) -> Iterator[Evidence]:
    for item in distributions:
        match = distribution(item.name, item.version, catalogue)
        if match is None or match.vendor is None or match.weight == "neutral":
            continue
        yield Evidence(
            kind="declared",
            vendor=match.vendor,
            backend=match.backend,
            path=item.path,
            detail=f"{item.name} {item.version}",
            role=PACKAGE_ROLE,
            confidence=match.confidence,
            weight=match.weight,
            toolkit=match.toolkit,
            distribution=item.owner,
        )


def _system_packages(packages: Iterable[SystemPackage], catalogue: Catalogue) -> Iterator[Evidence]:
    for package in packages:
        for owned in catalogue.system_packages.find(package.name)[:1]:
            if owned.vendor is None or owned.entry.weight == "neutral":
                continue
            yield Evidence(
                kind="declared",
                vendor=owned.vendor,
                backend=owned.backend,
                path="",
                detail=f"system package {package.name} {package.version}",
                role=PACKAGE_ROLE,
                confidence=owned.confidence,
                where=owned.entry.where,
                weight=owned.entry.weight,
            )


def _environment(environment: Mapping[str, str], catalogue: Catalogue) -> Iterator[Evidence]:
    for name, value in environment.items():
        seen: set[str] = set()
        for owned in catalogue.environment.find(name):
            entry = owned.entry
            if owned.vendor is None or owned.backend in seen or value in entry.idle:
                continue
            if not matches_any(entry.values, value):
                continue
            seen.add(owned.backend)
            yield Evidence(
                kind="environment",
                vendor=owned.vendor,
                backend=owned.backend,
                path="",
                detail=f"{name}={value[:SHOWN_VALUE]}",
                role=ENVIRONMENT_ROLE,
                confidence=owned.confidence,
                weight=entry.weight,
                toolkit=toolkit_in(value, entry.toolkit),
            )
