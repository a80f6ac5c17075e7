"""Build plan of a target, and its key in the journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from buildmatrix.commands.build import smoke
from buildmatrix.commands.build.digests import Digests
from buildmatrix.commands.build.options import Options
from buildmatrix.engines.model import BuildJob, Ingredients
from buildmatrix.locks.model import Lock
from buildmatrix.locks.project_wheel import project_packages
from buildmatrix.render.bake import bake_name, scan_name, staged_name
from buildmatrix.spec.model import Spec, Target
from buildmatrix.state import journal
from buildmatrix.state.folder import TargetFiles


class BuildPlan:
    """Jobs and keys for targets whose files were generated."""

    def __init__(
        self, spec: Spec, options: Options, engine: str, files: Mapping[str, bytes]
    ) -> None:
        """`engine` is the engine's name, `files` what was generated: path → content."""
        self._spec = spec
        self._options = options
        self._engine = engine
        self._bake = f"{spec.output}/docker-bake.json"
        #: Folder → what was generated into it.
        self._paths: defaultdict[str, list[str]] = defaultdict(list)
        for path in files:
            self._paths[path.rpartition("/")[0]].append(path)
        self._entries = msgspec.json.decode(files[self._bake])["target"]
        self._digests = Digests(spec.root, spec.output)

    def job(self, target: Target, lock: Lock, files: TargetFiles, has_device: bool) -> BuildJob:
        """Return the engine's job; `has_device` is about the target's backend."""
        root = self._spec.root
        return BuildJob(
            id=target.id,
            bake_file=root / self._bake,
            image_target=bake_name(target.id),
            scan_target=scan_name(target.id),
            context=root,
            tags=target.references,
            staged=staged_name(target.id, root),
            log=files.log,
            scan_output=files.scan_output,
            load=self._options.preflight not in (None, "auto")
            or (self._options.smoke and bool(smoke.runs_here(target, has_device))),
            ingredients=Ingredients(self._spec, target, lock),
        )

    def key(self, target: Target, lock: Lock, builder: str | None) -> str:
        """Digest of everything that the image is made of and made by.

        An image that a run does not load is where it was built, so each builder has its own.
        """
        names = bake_name(target.id), scan_name(target.id)
        return journal.make_key(
            {
                "engine": self._engine,
                "builder": builder,
                "mirror": self._options.surroundings.mirror,
                "bake": [self._entries[name] for name in names],
                "generated": {
                    path: self._digests.of(path)
                    for folder in (target.id, "scan")
                    for path in self._paths[f"{self._spec.output}/{folder}"]
                },
                "context": [self._digests.of(path) for path, _ in target.copy],
                "lock": lock.digest,
                **self._project(target),
            }
        )

    def _project(self, target: Target) -> dict[str, list[str]]:
        """Digests of the wheels of the project itself, where that is installed."""
        if not target.install_project:
            return {}
        packages = project_packages(self._spec.root, target)
        return {"project": [package.wheels[0].sha256 for package in packages]}
