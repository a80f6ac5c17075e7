"""Parts of a source that were not selected: extras and groups that are not audited."""

from __future__ import annotations

from buildmatrix.locks.lines import bracketed
from buildmatrix.locks.model import LeftOut
from buildmatrix.phrases import listing

#: Extras and groups that a sentence names.
_NAMED = 8


def parts_left_out(out: LeftOut, label: str) -> str:
    """Return the unaudited parts of the file `label`, and how to request them; empty for none."""
    kinds = (("extras", out.extras), ("groups", out.groups))
    parts = [
        f"{kind} {listing([f'`{name}`' for name in names], _NAMED)}"
        for kind, names in kinds
        if names
    ]
    if not parts:
        return ""
    extras, groups = out.more_extras, out.more_groups
    more = "at more of it"
    if not {*extras}.intersection(out.extras) and not {*groups}.intersection(out.groups):
        # All that is left excludes what was asked for.
        extras, groups, more = out.extras[:1], () if out.extras else out.groups[:1], "there instead"
    if len(extras) + len(groups) > _NAMED:
        # An example shows how; a list of all would be too long.
        extras, groups = out.extras[:1], out.groups[:1]
    wider = label + bracketed(extras)
    wider += f":{','.join(groups)}" if groups else ""
    return f"not audited of {label}: {'; '.join(parts)}. `{wider}` looks {more}"
