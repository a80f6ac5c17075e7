"""Drift between the targets of a matrix, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.base.text import count, listing, printable
from buildmatrix.reports.json_form import THIS_TOOL, Tool
from buildmatrix.reports.markdown import chain, plain
from buildmatrix.reports.terminal import Painter, wrapped

# Drift as data


@dataclass(frozen=True, slots=True)
class Pinned:
    """One version of a distribution, and the targets that have it."""

    version: str
    index: str | None
    targets: tuple[str, ...]
    #: From the requirement line down to it, on the first of the targets; by way of who asks for it
    #: there and not where the version is another, if somebody does.
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """A distribution that is not the same in all targets that have it."""

    name: str
    #: The one that most targets have comes first.
    pinned: tuple[Pinned, ...]


@dataclass(frozen=True, slots=True)
class ExplainedDrift(Drift):
    """Drift that is meant."""

    #: Why it is.
    reason: str


@dataclass(frozen=True, slots=True)
class Drifts:
    """Differences between the images of targets."""

    schema: Literal["buildmatrix/drift/1"] = field(default="buildmatrix/drift/1", kw_only=True)
    tool: Tool = field(default=THIS_TOOL, kw_only=True)
    targets: tuple[str, ...]
    #: Distributions that have one version everywhere.
    same: int = 0
    #: By name.
    drift: tuple[Drift, ...] = ()
    explained: tuple[ExplainedDrift, ...] = ()
    #: Targets that nothing is known of, and why.
    unresolved: tuple[str, ...] = ()
    #: Locks that do not fit their inputs any more.
    stale: tuple[str, ...] = ()


# Drift as a table and as Markdown


#: Entries of a kind, and targets of one version, that are shown without `--all`.
MOST, MOST_TARGETS = 40, 4


def render_table(drifts: Drifts, *, width: int, color: bool, every: bool = False) -> str:
    """The drift as text, wrapped at `width` columns."""
    paint, width = Painter(color), max(width, 40)
    bare, meant = drifts.drift, drifts.explained
    lines: list[str] = []
    for drift in bare if every else bare[:MOST]:
        lines += [paint(printable(drift.name), "yellow", "bold"), *_versions(drift, width, every)]
    if len(bare) > MOST and not every:
        lines.append(f"and {len(bare) - MOST} more; --all lists them")
    if meant:
        lines += ["", paint("different for a reason", "bold")]
        for drift in meant if every else meant[:MOST]:
            versions = listing((pinned.version for pinned in drift.pinned), 99 if every else 4)
            text = f"{drift.name} ({versions}): {drift.reason}"
            lines += wrapped(text, width, "  ")
        if len(meant) > MOST and not every:
            lines.append(f"  and {len(meant) - MOST} more; --all lists them")
    for title, texts in _list_left_out(drifts):
        lines += ["", paint(title, "bold")]
        lines += [line for text in texts for line in wrapped(text, width, "  ")]
    lines += ["", paint(summary(drifts), "yellow" if bare else "green", "bold")]
    return "\n".join(lines).lstrip("\n") + "\n"


def _list_left_out(drifts: Drifts) -> Iterator[tuple[str, tuple[str, ...]]]:
    if drifts.unresolved:
        yield "not resolved, so nothing is known about these", drifts.unresolved
    if drifts.stale:
        yield "locks that do not fit their inputs", drifts.stale


def _versions(drift: Drift, width: int, every: bool) -> Iterator[str]:
    wide = max(len(pinned.version) for pinned in drift.pinned)
    for pinned in drift.pinned:
        targets = listing(pinned.targets, len(pinned.targets) if every else MOST_TARGETS)
        yield f"  {printable(pinned.version.ljust(wide))}  {printable(targets)}"
        yield from wrapped(" -> ".join(pinned.chain), width, " " * (wide + 4))


def summary(drifts: Drifts) -> str:
    """One sentence about the whole."""
    parts = [
        f"{count(len(drifts.drift), 'distribution')} without a reason",
        f"{len(drifts.explained)} with one",
        f"{drifts.same} the same",
    ]
    text = f"{count(len(drifts.targets), 'target')}: {', '.join(parts)}"
    left = f"; {count(len(drifts.unresolved), 'target')} not resolved" if drifts.unresolved else ""
    return text + left


def render_markdown(drifts: Drifts, *, every: bool = False) -> str:
    """The drift as GitHub-flavored Markdown."""
    bare, meant = drifts.drift, drifts.explained
    lines = ["## buildmatrix: drift between targets", "", f"{plain(summary(drifts))}.", ""]
    for drift in bare if every else bare[:MOST]:
        lines.append(f"- **{plain(drift.name)}**")
        for pinned in drift.pinned:
            targets = listing(pinned.targets, len(pinned.targets) if every else MOST_TARGETS)
            lines.append(f"  - {plain(pinned.version)} on {plain(targets)}: {chain(pinned.chain)}")
    if len(bare) > MOST and not every:
        lines.append(f"- and {len(bare) - MOST} more; `--all` lists them")
    if meant:
        lines += ["", f"<details><summary>{len(meant)} different for a reason</summary>", ""]
        for drift in meant:
            versions = plain(listing((pinned.version for pinned in drift.pinned), 99))
            lines.append(f"- {plain(drift.name)} ({versions}): {plain(drift.reason)}")
        lines += ["", "</details>"]
    for title, texts in _list_left_out(drifts):
        lines += ["", f"{title}:", *(f"- {plain(text)}" for text in texts)]
    return "\n".join(lines) + "\n"
