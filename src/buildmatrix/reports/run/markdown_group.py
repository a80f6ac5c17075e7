"""Findings with one cause, as an item of a list in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from buildmatrix.reports.markdown import chain, plain, rich
from buildmatrix.reports.run.groups import FindingGroup, SharedText, cure_key, enumerated, named


def group_lines(
    group: FindingGroup,
    targets: Sequence[str],
    *,
    audited: bool,
    number: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """Findings with one cause as an item of a list.

    `targets` are all targets of the report, and `number` has the fixes that stand above.
    """
    item = group.first
    word = "waived" if item.waived is not None else item.severity
    where = f" in {plain(named(group.targets, targets))}"
    is_redundant = not any(group.targets) or (
        len(targets) == 1 and set(targets) == set(group.targets)
    )
    head = f"- **{word} {plain(item.rule)}** {plain(item.name)}"
    yield f"{head}{'' if is_redundant else where}" + (
        f": {rich(group.messages[0].text)}" if len(group.messages) == 1 else ""
    )
    for shared in group.messages:
        if len(group.messages) > 1:
            yield f"  <br>{_of(shared, targets)}{rich(shared.text)}"
        if shared.more:
            yield f"  <br>{plain(shared.more)}"
    if item.by_policy:
        yield f"  <br>{plain(item.by_policy)}"
    if item.chain:
        yield f"  <br>{chain(item.chain)}"
    if item.waived is not None:
        yield f"  <br>accepted: {plain(item.waived)}"
        return
    above = sorted({(number or {}).get(cure_key(finding), 0) for finding in group.findings})
    if all(above):
        yield f"  <br>fix: {enumerated([*map(str, above)])} above"
        return
    texts = group.cures(audited=audited, numbers=number)
    for shared in texts:
        yield f"  <br>{_of(shared, targets) if len(texts) > 1 else ''}{rich(shared.text)}"


def _of(shared: SharedText, targets: Sequence[str]) -> str:
    return f"{plain(named(shared.targets, targets))}: "
