"""What a distribution requires, and whose that is.

`Requires-Dist` lines of the core metadata, with environment markers (PEP 508) evaluated for the
target and not for the machine that asks. Extras of meta packages are followed: a requirement for
`cuda-toolkit[cublas]` brings cuBLAS, one for `cuda-toolkit` brings nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from packaging.markers import InvalidMarker, default_environment

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import DistributionMatch
from buildmatrix.inventory.model import Distribution
from buildmatrix.inventory.names import distribution_name
from buildmatrix.parsing import holds, requirement_or_none

_PYTHON = re.compile(r"python(3\.\d+)/")
_LINUX = {
    "os_name": "posix",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}


@dataclass(frozen=True, slots=True)
class Required:
    """One requirement line of a distribution."""

    #: Normalized.
    name: str
    extras: tuple[str, ...]
    #: Whether it is installed on the target when no extra is asked for.
    active: bool
    #: What the catalogue says about `name`, whatever its version.
    match: DistributionMatch | None

    @property
    def brings(self) -> tuple[str, ...]:
        """Names of what is installed for it, itself first; a meta package brings its extras'."""
        extras = self.match.extras if self.match is not None else None
        if extras is None:
            return (self.name,)
        return tuple(dict.fromkeys(name for extra in self.extras for name in extras.get(extra, ())))


def requirements(
    item: Distribution,
    catalogue: Catalogue,
    environment: Mapping[str, str] | None = None,
) -> tuple[Required, ...]:
    """The requirements of `item`, in the order of its metadata.

    `environment` has the values of environment markers; default: Linux on x86-64. The interpreter
    is that which `item` is installed for, where its path says so. Lines that are no requirements
    are left out, as installers do.
    """
    values = _environment(item, environment or {})
    return tuple(_required(item.requires, values, catalogue))


def _required(
    lines: tuple[str, ...], environment: Mapping[str, str], catalogue: Catalogue
) -> Iterator[Required]:
    values = tuple(environment.items())
    for line in lines:
        requirement = requirement_or_none(line)
        if requirement is None:
            continue
        name = distribution_name(requirement.name)
        yield Required(
            name=name,
            extras=tuple(sorted(requirement.extras)),
            active=requirement.marker is None or _holds(line, values),
            match=distribution(name, "", catalogue),
        )


# The same wheels are judged for each backend, and again when more of them was read.
@lru_cache(maxsize=16384)
def _holds(line: str, environment: tuple[tuple[str, str], ...]) -> bool:
    requirement = requirement_or_none(line)
    marker = requirement.marker if requirement is not None else None
    try:
        return marker is None or holds(marker, dict(environment))
    # Installers refuse it; what it requires is looked at all the same.
    except InvalidMarker:
        return True


def _environment(item: Distribution, environment: Mapping[str, str]) -> dict[str, str]:
    """Values of environment markers for the interpreter that `item` is installed for."""
    values = {key: str(value) for key, value in default_environment().items()}
    values.update(_LINUX)
    values.update(environment)
    python = _PYTHON.search(item.path)
    if python is not None:
        values["python_version"] = python[1]
        values["python_full_version"] = f"{python[1]}.0"
    return values
