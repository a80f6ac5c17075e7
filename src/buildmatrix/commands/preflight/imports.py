"""Rung `import`: failed imports, their causes, and agreement with static verdicts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import PurePosixPath

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import library
from buildmatrix.commands.preflight.protocol import (
    make_call,
    make_missing_checks,
    make_silent_check,
    read_checks,
)
from buildmatrix.engines.model import Run
from buildmatrix.inventory.model import Inventory
from buildmatrix.loader.resolution import Resolution
from buildmatrix.loader.resolver import resolve
from buildmatrix.reports.preflight.model import Check

#: Seconds for one import, and for all of them.
EACH_S, ALL_S = 120, 1_800


def run_imports(
    run: Run, catalogue: Catalogue, backend: str, python: str = "python"
) -> tuple[Check, ...]:
    """Import everything in the image of a backend, each name in its own process.

    Imports that need a missing optional module, or the driver of a node, are `not-run`.
    """
    probe = make_call("imports", {"seconds": EACH_S}, python)
    result = run(probe.command, ALL_S)
    seen = read_checks(result.output, probe.mark)
    listing = next((check for check in seen if check.subject == "modules"), None)
    if listing is None:
        return (make_silent_check("modules", result, ALL_S),)
    names = listing.values.get("names")
    expected = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    rest = make_missing_checks(expected, seen, "the probe ended before it got there")
    return (
        *(_explain(check, catalogue, backend) for check in seen if check is not listing),
        *rest,
    )


def waits_for_driver(check: Check) -> bool:
    """True if an import was not completed, since the host's driver is missing here."""
    return check.state == "not-run" and "missing_library" in check.values


def _explain(check: Check, catalogue: Catalogue, backend: str) -> Check:
    """Describe a failed import by its cause: the missing library, or the package that broke it."""
    if check.state != "failed":
        return check
    name = check.values.get("missing_library")
    if isinstance(name, str) and name:
        if _is_of_host(name, catalogue, backend):
            message = f"it needs {name}, which the driver of a node brings"
            return replace(check, state="not-run", message=message)
        return replace(check, message=f"{name} is missing, which importing it needs")
    raised, own = check.values.get("raised_in"), check.values.get("distribution")
    if isinstance(raised, str) and isinstance(own, str) and "site-packages/" in raised:
        package = PurePosixPath(raised.rpartition("site-packages/")[2]).parts[0]
        if package not in (check.subject.partition(".")[0], own.replace("-", "_")):
            return replace(check, message=f"{check.message} (raised in {package})")
    return check


def _is_of_host(name: str, catalogue: Catalogue, backend: str) -> bool:
    """True if the host must provide a library of the backend's own vendor."""
    vendor = catalogue.vendor_of(backend)
    matches = library(name, None, catalogue)
    return any(
        match.owned.entry.where == "host" and match.owned.vendor == vendor for match in matches
    )


def find_disagreements(failed: Collection[Check], inventory: Inventory) -> tuple[Check, ...]:
    """Return differences between the loader and our model of it: defects of buildmatrix."""
    libraries = {
        name
        for check in failed
        if isinstance(name := check.values.get("missing_library"), str) and name
    }
    if not libraries:
        return ()
    missing = _find_missing(resolve(inventory))
    return tuple(
        Check(
            f"buildmatrix: {name}",
            "undecided",
            f"the loader in the image did not find {name}, and buildmatrix's model of it did "
            "not expect that; please report it with this image",
        )
        for name in sorted(libraries - missing)
    )


def _find_missing(resolution: Resolution) -> set[str]:
    return {needed.name for needed in resolution.missing}
