"""Details of one row: named fields with texts that are safe to display."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from buildmatrix.base.text import count, listing, printable, shown, size
from buildmatrix.commands.why_files import file_id
from buildmatrix.explore.model import Exploration, Item
from buildmatrix.facts.elf.model import DeviceCode
from buildmatrix.facts.inventory.model import Artefact, Binary, Container, Distribution
from buildmatrix.judge.model import Finding
from buildmatrix.reports import why
from buildmatrix.reports.why import LINKS, OPENS, Edge

#: Entries shown of one list; `inspect` and `why` show all.
MOST = 40
_MOST_FINDINGS = 12

Tone = Literal["", "bad", "weak"]


class Detail(Struct, frozen=True):
    """One field; without a name, it continues the previous one."""

    name: str
    text: str
    tone: Tone = ""


def make_details(item: Item, exploration: Exploration) -> tuple[Detail, ...]:
    """Return all details of `item`."""
    return tuple(
        Detail(detail.name, printable(shown(detail.text)), detail.tone)
        for detail in _DETAILS.get(item.kind, _sizes)(item, exploration)
    )


def make_question(item: Item, exploration: Exploration) -> str | None:
    """Return the `why` question for a row; None if there is none."""
    match item.kind:
        case "file" | "vendor" | "role":
            return item.key
        case "distribution":
            return item.key.partition("==")[0]
        case "deleted" | "replaced" if item.key:
            return exploration.inventory.buried[int(item.key)].path
        case _:
            return None


def _sizes(item: Item, exploration: Exploration) -> Iterator[Detail]:
    wasted = f", {size(item.wasted)} of it wasted" if item.wasted else ""
    if item.wasted and exploration.backend and item.kind not in ("deleted", "replaced", "layer"):
        wasted += f" on {exploration.backend}"
    yield Detail("size", size(item.size) + wasted, "bad" if item.wasted else "")


def _layer(item: Item, exploration: Exploration) -> Iterator[Detail]:
    layer = exploration.inventory.layers[int(item.key)]
    yield from _sizes(item, exploration)
    if layer.hidden:
        yield Detail("hidden", f"{size(layer.hidden)} that later layers delete or replace", "bad")
    vendors: dict[str, int] = {}
    for child in _leaves(item):
        for vendor in child.vendors:
            vendors[vendor] = vendors.get(vendor, 0) + child.size
    if vendors:
        ordered = sorted(vendors, key=lambda name: -vendors[name])
        yield Detail("files of", ", ".join(f"{name} {size(vendors[name])}" for name in ordered))
    yield Detail("made by", why.made_by(layer.instruction))
    if item.note:
        yield Detail("stands in", item.note)
    if layer.is_base:
        yield Detail("", "it comes with the base image")
    yield Detail("digest", layer.digest or "not known")


def _leaves(item: Item) -> Iterator[Item]:
    for child in item.children:
        if child.kind == "file":
            yield child
        yield from _leaves(child)


def _hidden(item: Item, exploration: Exploration) -> Iterator[Detail]:
    yield from _sizes(item, exploration)
    if not item.key:
        yield Detail("", "files of small groups that a later layer deletes or replaces")
        return
    buried = exploration.inventory.buried[int(item.key)]
    graph = exploration.source.graph
    yield Detail("hidden", why.describe_hidden(graph, buried), "bad")
    if buried.names:
        yield Detail("holds", listing(buried.names, MOST))


def _distribution(item: Item, exploration: Exploration) -> Iterator[Detail]:
    yield from _sizes(item, exploration)
    verdict = exploration.files.verdicts.get(item.key)
    if verdict is not None:
        tone: Tone = "bad" if verdict.verdict in ("bloat", "broken") else ""
        open_ = "" if verdict.certain else f" (may be {verdict.may_be or 'otherwise'})"
        yield Detail("verdict", f"{verdict.verdict}{open_}: {verdict.reason}", tone)
        for vendor, architectures in verdict.architectures.items():
            yield Detail("code for", f"{vendor}: {' '.join(architectures)}")
        if verdict.open:
            yield Detail("not read", verdict.open, "weak")
    name, _, version = item.key.partition("==")
    about = (
        finding
        for finding in exploration.findings
        if name in finding.distributions and finding.version in (None, version)
    )
    yield from _findings(about)
    by_key = {f"{each.name}=={each.version}": each for each in exploration.files.distributions}
    if (distribution := by_key.get(item.key)) is not None:
        yield from _metadata(distribution)
    askers = exploration.source.graph.into.get(f"distribution:{name}", ())
    labels = [_label(exploration, edge.source) for edge in askers if edge.kind != "imports"]
    if labels:
        yield Detail("asked for", f"by {listing(labels, MOST)}")


def _metadata(distribution: Distribution) -> Iterator[Detail]:
    if distribution.requires:
        yield Detail("requires", listing(distribution.requires, MOST))
    if distribution.variant is not None:
        yield Detail("variant", distribution.variant.label)
    license_ = distribution.license_expression or distribution.license
    if license_:
        yield Detail("license", license_)
    yield Detail("metadata", distribution.path)
    if distribution.installer:
        asked = ", asked for by name" if distribution.requested else ""
        yield Detail("installed", f"by {distribution.installer}{asked}")


def _leftover(item: Item, exploration: Exploration) -> Iterator[Detail]:
    yield from _sizes(item, exploration)
    yield Detail("", f"{item.name} in {item.note}, which was never installed", "bad")
    about = (finding for finding in exploration.findings if finding.path == item.key)
    yield from _findings(about)


def _file(item: Item, exploration: Exploration) -> Iterator[Detail]:
    fact = exploration.files.facts[item.key]
    yield Detail("path", fact.path)
    yield from _sizes(item, exploration)
    yield from _place(fact.path, fact.owner, exploration)
    yield from _findings(
        finding
        for finding in exploration.findings
        if finding.path == fact.path or any(each.path == fact.path for each in finding.evidence)
    )
    if isinstance(fact, Binary):
        yield from _binary(fact, exploration)
    elif isinstance(fact, Artefact):
        yield Detail("kind", fact.kind)
        yield from _device_code(fact.device_code)
    elif isinstance(fact, Container):
        yield Detail("kind", f"{fact.kind} with {count(fact.files, 'file')}")
        if fact.closed:
            yield Detail("not read", fact.closed, "bad")
    else:
        yield Detail("not read", "only its name and size are known", "bad")
    evidence = exploration.files.evidence.get(fact.path, ())
    for number, entry in enumerate(evidence[:MOST]):
        text = f"{entry.vendor} {entry.role}, {entry.kind}: {entry.detail} ({entry.confidence})"
        yield Detail("" if number else "evidence", text)
    if len(evidence) > MOST:
        yield Detail("", f"and {len(evidence) - MOST} more", "weak")


def _place(path: str, owner: str | None, exploration: Exploration) -> Iterator[Detail]:
    package = exploration.inventory.packaged.get(path)
    if owner is not None:
        verdict = exploration.files.verdicts.get(owner)
        is_bad = verdict is not None and verdict.verdict in ("bloat", "broken")
        text = f", {verdict.verdict}" if verdict is not None else ""
        yield Detail("of", f"{owner.replace('==', ' ')}{text}", "bad" if is_bad else "")
    elif package is not None:
        yield Detail("of", f"{package}, a package of the system")
    graph = exploration.source.graph
    node = graph.nodes.get(file_id(path))
    put = why.layer(graph, node) if node is not None else None
    if put is not None:
        yield Detail("brought by", put)


def _binary(binary: Binary, exploration: Exploration) -> Iterator[Detail]:
    elf = binary.elf
    yield Detail("kind", f"ELF {elf.type}, {elf.machine}, {elf.bits} bits")
    if elf.soname:
        yield Detail("soname", elf.soname)
    graph = exploration.source.graph
    id = file_id(binary.path)
    links = [edge for edge in graph.out.get(id, ()) if edge.kind in LINKS]
    for number, edge in enumerate(links[:MOST]):
        yield Detail("" if number else "needed", *_link(exploration, edge))
    if len(links) > MOST:
        yield Detail("", f"and {len(links) - MOST} more", "weak")
    if not elf.dynamic_read:
        yield Detail("not read", "its dynamic section: links may be missing here", "bad")
    if elf.rpath or elf.runpath:
        yield Detail("runpath" if elf.runpath else "rpath", ":".join(elf.runpath or elf.rpath))
    yield from _device_code(elf.device_code)
    opens = [edge.text for edge in graph.out.get(id, ()) if edge.kind in OPENS]
    if opens:
        yield Detail("may open", listing(opens, MOST))
    askers = [edge for edge in graph.into.get(id, ()) if edge.kind in LINKS]
    if askers:
        names = (_label(exploration, edge.source).rpartition("/")[2] for edge in askers)
        yield Detail("linked by", listing(names, MOST))
    for text in elf.unread:
        yield Detail("not read", text, "bad")


def _link(exploration: Exploration, edge: Edge) -> tuple[str, Tone]:
    target = exploration.source.graph.nodes[edge.target]
    if target.kind == "file":
        return f"{edge.text} → {target.label}", "" if edge.certain else "weak"
    if target.text:
        return f"{edge.text}, {target.text}", "weak"
    if not exploration.source.graph.is_root:
        return f"{edge.text}, not in here", "weak"
    return f"{edge.text}, which the loader does not find", "bad"


def _device_code(code: Sequence[DeviceCode]) -> Iterator[Detail]:
    kinds: dict[str, list[DeviceCode]] = {}
    for entry in code:
        kinds.setdefault(entry.kind, []).append(entry)
    for number, (kind, entries) in enumerate(kinds.items()):
        names = dict.fromkeys(entry.arch or "unknown" for entry in entries)
        text = f"{kind} {size(sum(entry.size for entry in entries))}: {listing(names, MOST)}"
        yield Detail("" if number else "device code", text)


def _vendor(item: Item, exploration: Exploration) -> Iterator[Detail]:
    yield from _sizes(item, exploration)
    for number, child in enumerate(item.children if item.kind == "vendor" else ()):
        text = f"{child.name}: {size(child.size)} in {count(len(child.children), 'file')}"
        yield Detail("" if number else "holds", text)
    architectures = dict.fromkeys(
        name
        for file in _leaves(item)
        for entry in exploration.files.evidence.get(file.key, ())
        if entry.backend == item.key
        for name in entry.architectures
    )
    if architectures:
        yield Detail("code for", listing(architectures, MOST))
    yield Detail("files", listing((file.name for file in _leaves(item)), MOST))


def _findings(findings: Iterable[Finding]) -> Iterator[Detail]:
    about = list(findings)
    for finding in about[:_MOST_FINDINGS]:
        tone: Tone = "bad" if finding.severity == "error" and finding.waived is None else ""
        waived = " (waived)" if finding.waived is not None else ""
        yield Detail(finding.rule, f"{finding.severity}{waived}: {finding.message}", tone)
        if finding.fix is not None:
            yield Detail("", f"fix: {finding.fix.text}")
    if len(about) > _MOST_FINDINGS:
        yield Detail("", f"and {count(len(about) - _MOST_FINDINGS, 'more finding')}", "weak")


def _label(exploration: Exploration, id: str) -> str:
    return exploration.source.graph.nodes[id].label


_DETAILS = {
    "layer": _layer,
    "deleted": _hidden,
    "replaced": _hidden,
    "distribution": _distribution,
    "leftover": _leftover,
    "vendor": _vendor,
    "role": _vendor,
    "file": _file,
}
