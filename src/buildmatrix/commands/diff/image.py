"""Comparison of images: layers, and the environment of the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from buildmatrix.inventory.model import Layer
from buildmatrix.reports.diff.model import Change, LayerChange, LayersChange, VariableChange

#: Layers of an image: overlay file systems support about 500.
_MOST = 1000
#: Names of variables with secret values; results are posted to pull requests.
_SECRET = re.compile(
    r"TOKEN|PASSW|SECRET|CREDENTIAL|PRIVATE|(^|_)(API|ACCESS|AUTH)?_?KEY($|_)", re.I
)
HIDDEN = "(not shown)"
#: Prefix of a step's command from BuildKit and the classic builder.
_SHELL = re.compile(r"^(RUN )?(\|\d+ .*?)?/bin/(ba)?sh -c (#\(nop\) )?")


def compare_layers(before: Sequence[Layer], after: Sequence[Layer]) -> LayersChange:
    """Return added, removed and changed layers, from the bottom.

    Above the first different layer all digests differ, so layers are matched by their instructions.
    """
    same = 0
    for item, other in zip(before, after, strict=False):
        if item.digest != other.digest:
            break
        same += 1
    return LayersChange(
        len(before),
        len(after),
        same,
        sum(layer.hidden for layer in before),
        sum(layer.hidden for layer in after),
        tuple(_match_layers(before[same:_MOST], after[same:_MOST], same)),
    )


def _match_layers(
    before: Sequence[Layer], after: Sequence[Layer], same: int
) -> Iterator[LayerChange]:
    old_steps, new_steps = (
        [_format_instruction(layer) or layer.digest for layer in side] for side in (before, after)
    )
    matcher = SequenceMatcher(None, old_steps, new_steps, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            for old, new in zip(range(start, end), range(new_start, new_end), strict=True):
                if before[old].digest != after[new].digest:
                    yield _make_change("changed", same + new, before[old], after[new])
            continue
        for old in range(start, end):
            yield _make_change("removed", same + old, before[old], None)
        for new in range(new_start, new_end):
            yield _make_change("added", same + new, None, after[new])


def _make_change(change: Change, index: int, old: Layer | None, new: Layer | None) -> LayerChange:
    latest = new or old
    assert latest is not None
    return LayerChange(
        change,
        index,
        _format_instruction(latest),
        old.size if old else None,
        new.size if new else None,
    )


def _format_instruction(layer: Layer) -> str:
    """Return the instruction as in a Dockerfile, on one line."""
    text = " ".join(layer.instruction.split())
    return _SHELL.sub(lambda match: "" if match[4] else "RUN ", text).removesuffix(" # buildkit")


def compare_environment(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[VariableChange, ...]:
    """Return added, removed and changed variables, by name; secret values are hidden."""
    changes = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        change: Change = "added" if old is None else "removed" if new is None else "changed"
        if _SECRET.search(name):
            old, new = (None if value is None else HIDDEN for value in (old, new))
        changes.append(VariableChange(change, name, old, new))
    return tuple(changes)
