"""What only images have: layers and the environment of the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from buildmatrix.inventory.model import Layer
from buildmatrix.reports.diff.model import Change, LayerChange, LayersChange, VariableChange

#: Layers of an image: overlay file systems end at about 500.
_MOST = 1000
#: Names of variables whose values are nobody's to see; results are posted to pull requests.
_SECRET = re.compile(
    r"TOKEN|PASSW|SECRET|CREDENTIAL|PRIVATE|(^|_)(API|ACCESS|AUTH)?_?KEY($|_)", re.I
)
HIDDEN = "(not shown)"
#: What BuildKit and the classic builder put before the command of a step.
_SHELL = re.compile(r"^(RUN )?(\|\d+ .*?)?/bin/(ba)?sh -c (#\(nop\) )?")


def compare_layers(before: Sequence[Layer], after: Sequence[Layer]) -> LayersChange:
    """Layers that came, went, or hold other bytes, from the bottom.

    Above the first layer that differs all have other digests, so they are matched by the
    instruction that made them.
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
        tuple(_changes(before[same:_MOST], after[same:_MOST], same)),
    )


def _changes(before: Sequence[Layer], after: Sequence[Layer], same: int) -> Iterator[LayerChange]:
    old_steps, new_steps = (
        [_instruction(layer) or layer.digest for layer in side] for side in (before, after)
    )
    matcher = SequenceMatcher(None, old_steps, new_steps, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            for old, new in zip(range(start, end), range(new_start, new_end), strict=True):
                if before[old].digest != after[new].digest:
                    yield _change("changed", same + new, before[old], after[new])
            continue
        for old in range(start, end):
            yield _change("removed", same + old, before[old], None)
        for new in range(new_start, new_end):
            yield _change("added", same + new, None, after[new])


def _change(change: Change, index: int, old: Layer | None, new: Layer | None) -> LayerChange:
    latest = new or old
    assert latest is not None
    return LayerChange(
        change,
        index,
        _instruction(latest),
        old.size if old else None,
        new.size if new else None,
    )


def _instruction(layer: Layer) -> str:
    """The instruction as a Dockerfile has it, on one line."""
    text = " ".join(layer.instruction.split())
    return _SHELL.sub(lambda match: "" if match[4] else "RUN ", text).removesuffix(" # buildkit")


def compare_environment(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[VariableChange, ...]:
    """Variables that came, went or have another value, by name; values of secrets are not shown."""
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
