"""Questions of `init` to an index and to registries; without an answer, nothing is lost."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from buildmatrix.errors import BuildmatrixError
from buildmatrix.http.failures import Patience, RequestError
from buildmatrix.locks.model import Package
from buildmatrix.locks.preview import packages_of, resolve
from buildmatrix.locks.recent import Recent
from buildmatrix.locks.requirement_files import check
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.target_requirements import add_target
from buildmatrix.locks.uv import find_uv, settings_of
from buildmatrix.progress import Silent
from buildmatrix.registry import client
from buildmatrix.registry.mirrors import Mirrors
from buildmatrix.registry.reference import Reference
from buildmatrix.spec.model import bare_target
from buildmatrix.trees.base import Closing

#: A first specification is written without digests rather than waited for.
_PATIENCE = Patience(tries=1, connect=3.0, silence=5.0, request=8.0)


def asker_of_torch(
    requirements: Sequence[str], pyproject: str | None, root: Path, python: str, base: str
) -> str | None:
    """What leads to torch, `sentence-transformers, requirements.in:3`; empty where nothing does.

    None where the requirements, files below `root`, cannot be resolved.
    """
    target = dataclasses.replace(
        bare_target("cpu", "cpu", base=base, python=python),
        requirements=tuple(requirements),
        pyproject=pyproject,
    )
    try:
        wanted = RequirementSet(settings=settings_of(root), tolerant=True)
        add_target(wanted, root, target)
        check(wanted)
        answer = resolve(find_uv(), target, wanted, Recent(), Silent(), offline=False)
        packages = {package.name: package for package in packages_of(answer, target, wanted)}
    except BuildmatrixError:
        return None
    return ", ".join(_way(packages, "torch")) if "torch" in packages else ""


def _way(packages: Mapping[str, Package], name: str) -> list[str]:
    """Return the distributions that require a package, up to a line of a file."""
    way: list[str] = []
    while name in packages and len(way) < len(packages):
        askers = packages[name].via
        lines = [asker for asker in askers if asker not in packages]
        new = [asker for asker in askers if asker not in way]
        if lines or not new:
            return [*way, *lines[:1]]
        name = new[0]
        way.append(name)
    return way


class Digests(Closing):
    """Asks registries for digests of base images; one that does not answer is asked once."""

    def __init__(self) -> None:
        self._registry = client.Registry(patience=_PATIENCE, mirrors=Mirrors(os.environ))
        #: Registries that did not answer.
        self._silent: set[str] = set()

    def close(self) -> None:
        """Close all connections."""
        self._registry.close()

    def of(self, image: str) -> str:
        """The digest of an image; empty where its registry does not answer."""
        reference = Reference.parse(image)
        if reference.host in self._silent:
            return ""
        try:
            return self._registry.digest(reference)
        except RequestError as error:
            if error.status is None:
                self._silent.add(reference.host)
        except BuildmatrixError:
            pass  # The image is not there, or not for everybody.
        return ""
