"""Choosing targets by pattern and by subset."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.errors import UsageError
from buildmatrix.spec.hints import did_you_mean
from buildmatrix.spec.model import Spec, Target
from buildmatrix.spec.points import match, suggest


def select(spec: Spec, globs: Sequence[str], subset: str | None = None) -> tuple[Target, ...]:
    """The targets that the user asked for, in matrix order.

    Args:
        spec: where they come from.
        globs: patterns for identifiers; a target is chosen when any matches, and left out when
            one that begins with `!` does. Without one of the first kind, all are chosen.
        subset: name of a subset that the specification describes; limits what the globs choose.

    Raises:
        UsageError: a pattern matches nothing, or there is no such subset.
    """
    ids = [target.id for target in spec.targets]
    if subset is not None:
        if subset not in spec.subsets:
            hint = did_you_mean(subset, spec.subsets, "subsets")
            raise UsageError(f"{spec.path} has no subset `{subset}`; {hint}")
        ids = [id for id in ids if id in spec.subsets[subset]]
    where = f"subset `{subset}`" if subset else str(spec.path)
    for glob in globs:
        pattern = glob.removeprefix("!")
        if not match([pattern], ids):
            advice = _advice(pattern, ids, spec)
            raise UsageError(f"no target of {where} matches `{pattern}`; {advice}")
    wanted = [glob for glob in globs if not glob.startswith("!")]
    unwanted = [glob[1:] for glob in globs if glob.startswith("!")]
    chosen = set(match(wanted, ids) if wanted else ids) - set(match(unwanted, ids))
    if not chosen and globs:
        raise UsageError(f"--select {' '.join(globs)} leaves no target of {where}")
    return tuple(target for target in spec.targets if target.id in chosen)


def _advice(glob: str, ids: Sequence[str], spec: Spec) -> str:
    for exclusion in spec.excluded:
        if match([glob], [exclusion.id]):
            return f"{exclusion.id} is excluded: {exclusion.reason}"
    return suggest(glob, ids)
