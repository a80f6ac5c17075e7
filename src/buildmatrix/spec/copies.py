"""What `copy` names must be there when an image is to be built; to plan, lock or scan, it need not.

A folder of `copy` may be what an earlier step makes (`dist/`), so a specification without it is
none the worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from buildmatrix.spec.document import Problems
from buildmatrix.spec.hints import closest
from buildmatrix.spec.model import Position, Spec, Target


def check_copied(spec: Spec, targets: Sequence[Target]) -> None:
    """Raises `SpecError` with the place of every path of `copy` that `targets` cannot copy."""
    problems = Problems(str(spec.path))
    root = spec.root.resolve()
    for path in dict.fromkeys(source for target in targets for source, _ in target.copy):
        place = (spec.root / path).resolve()
        if not place.exists():
            problems.add(
                _at(spec, path),
                f"there is no `{path}` below the specification's folder, and it is to be copied",
                _advice(spec, path),
            )
        elif not place.is_relative_to(root):
            problems.add(
                _at(spec, path),
                f"`{path}` is to be copied, and is a link that leads out of the specification's "
                "folder",
                "put the files themselves there",
            )
    problems.stop()


def _advice(spec: Spec, path: str) -> str:
    folder = (spec.root / path).parent
    near = closest(path.rpartition("/")[2], [entry.name for entry in folder.glob("*")][:1000])
    if near is None:
        return "make it first, or take it out of `copy`"
    return f"did you mean `{PurePosixPath(path).with_name(near)}`?"


def _at(spec: Spec, path: str) -> Position | None:
    """Where it stands; with placeholders, the first entry that may have become it."""
    for written, at in spec.copied:
        if str(PurePosixPath(written)) == path:
            return at
    return next((at for written, at in spec.copied if "{" in written), None)
