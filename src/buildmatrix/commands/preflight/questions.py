"""What the probes are asked about a backend, as the catalogue has it."""

from __future__ import annotations

from collections.abc import Mapping

from buildmatrix.catalogue.load import Catalogue

#: What hides devices from a program, whoever's they are.
_HIDING = "*VISIBLE*"


def frameworks(backend: str, catalogue: Catalogue) -> Mapping[str, Mapping[str, list[str]]]:
    """Module of a framework -> all names of devices (`kinds`), and which are `wanted`.

    `imports`: modules that bring the wanted ones. A framework that has nothing but the CPU is left
    out for other backends, of which it has nothing to say.
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


def hosts(backend: str, catalogue: Catalogue) -> list[dict[str, object]]:
    """How a machine shows that it has devices of the backend, as the probe wants it."""
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


def environment(backend: str, catalogue: Catalogue) -> list[str]:
    """Globs of the variables that matter to devices of the backend."""
    files = (file for file in catalogue.files.values() if file.backend == backend)
    # Of those that everybody has (PATH) some values alone are a backend's.
    entries = (entry for file in files for entry in file.environment if not entry.values)
    names = (name for entry in entries for name in entry.names)
    return list(dict.fromkeys([_HIDING, *names]))
