"""Links and requirements between the distributions of a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from buildmatrix.rules.composition import Composition

#: Sentences of one list.
_MOST = 120


@dataclass(frozen=True, slots=True)
class LinkList:
    """Sentences about targets whose distributions link and require the same."""

    targets: tuple[str, ...]
    sentences: tuple[str, ...]
    #: Sentences that are not listed.
    left_out: int


def link_list(targets: Sequence[str], composition: Composition) -> LinkList | None:
    """Return the links and requirements of one composition; None if it has none.

    Links come first, and the heaviest distributions first.
    """
    parts = {part.name: part for part in composition.distributions if part.name}
    arrows: dict[tuple[str, str], bool] = {}
    for name, part in parts.items():
        for needed in part.links:
            arrows[name, needed] = True
        for asker in part.required_by:
            arrows.setdefault((asker, name), False)
    kept = [ends for ends in arrows if ends[0] != ends[1] and parts.keys() >= set(ends)]
    kept.sort(key=lambda ends: (not arrows[ends], -parts[ends[1]].size))
    if not kept:
        return None
    sentences = tuple(
        f"{source} {'links libraries of' if arrows[source, end] else 'requires'} {end}"
        for source, end in kept[:_MOST]
    )
    return LinkList(tuple(targets), sentences, len(kept) - len(sentences))
