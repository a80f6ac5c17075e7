"""Questions to the probes about a backend, from the catalogue."""

from __future__ import annotations

from collections.abc import Mapping

from buildmatrix.catalogue.load import Catalogue

#: Variables that hide devices of any vendor from a program.
_HIDING = "*VISIBLE*"


def list_frameworks(backend: str, catalogue: Catalogue) -> Mapping[str, Mapping[str, list[str]]]:
    """Map framework modules to all device names (`kinds`) and the `wanted` ones.

    `imports` are modules that provide the wanted ones. A framework with only the CPU is omitted for
    other backends, since it is irrelevant to them.
    """
    entries = catalogue.framework_devices
    has_vendor = catalogue.vendor_of(backend) is not None
    questions: dict[str, Mapping[str, list[str]]] = {}
    for name in dict.fromkeys(owned.entry.framework for owned in entries):
        own = [owned for owned in entries if owned.entry.framework == name]
        wanted = [owned.entry for owned in own if owned.backend == backend]
        if has_vendor and all(owned.vendor is None for owned in own):
            continue
        kinds = (kind for owned in own for kind in owned.entry.devices)
        questions[name] = {
            "kinds": list(dict.fromkeys(kinds)),
            "imports": [module for entry in wanted for module in entry.imports],
            "wanted": [kind for entry in wanted for kind in entry.devices],
        }
    return questions


def list_hosts(backend: str, catalogue: Catalogue) -> list[dict[str, object]]:
    """Return the signs of the backend's devices on a machine, for the probe."""
    return [
        {
            "nodes": list(owned.entry.nodes),
            "sysfs": owned.entry.sysfs or "",
            "vendor": owned.entry.pci_vendor or "",
            "needs": list(owned.entry.needs),
            "modules": list(owned.entry.modules),
            "version_files": list(owned.entry.version_files),
            "version": owned.entry.version,
        }
        for owned in catalogue.hosts
        if owned.backend == backend
    ]


def list_variables(backend: str, catalogue: Catalogue) -> list[str]:
    """Return globs of the variables relevant to devices of the backend."""
    files = (file for file in catalogue.files.values() if file.backend == backend)
    # Common variables (PATH) are a backend's only by value.
    entries = (entry for file in files for entry in file.environment if not entry.values)
    names = (name for entry in entries for name in entry.names)
    return list(dict.fromkeys([_HIDING, *names]))
