"""The answer of `why` as text for a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from buildmatrix.base.text import count, listing, printable, size
from buildmatrix.reports import why
from buildmatrix.reports.json_form import Json, plain
from buildmatrix.reports.terminal import Painter, wrapped
from buildmatrix.reports.why import Answer, AnsweredNode, Chain, Edge, Graph, Node, Use

_INDENT = "  "
#: Names of one list that are shown; JSON has them all.
_SHOWN = 6

#: Longest word shown; JSON has all of it.
_LONG = re.compile(r"(\S{120})\S{80,}(\S{120})")

#: Kinds of nodes that are called otherwise, and several of them.
_NOUNS = {
    "library": ("name without a file", "names without a file"),
    "embedded": ("copy inside another file", "copies inside other files"),
}
_KINDS = {
    "backend": "everything of the backend",
    "vendor": "everything of the vendor",
    "path": "the path",
    "glob": "the pattern",
    "distribution": "the distribution",
    "name": "the name",
}


def render(answer: Answer, *, width: int, color: bool) -> str:
    """The answer, wrapped at `width` columns."""
    return "\n".join(_AnswerWriter(answer, max(width, 40), Painter(color)).lines()) + "\n"


class _AnswerWriter:
    def __init__(self, answer: Answer, width: int, paint: Painter) -> None:
        self._answer = answer
        self._graph = answer.graph
        self._width = width
        self._paint = paint
        self._site = _site(answer)

    def lines(self) -> Iterator[str]:
        answer = self._answer
        if answer.subjects:
            yield from self._wrapped(self._summary(), "")
            if self._site:
                yield from self._wrapped(f"… is {self._site.rstrip('/')}", "")
        else:
            yield from self._nothing()
        for subject in answer.subjects:
            yield ""
            yield from self._subject(subject)
        if answer.left_out:
            yield ""
            yield from self._rest(answer.left_out)
        for buried in answer.question.buried[:_SHOWN]:
            yield ""
            text = why.describe_hidden(self._graph, buried)
            yield from self._wrapped(self._short(f"Hidden: {text}"), "", _INDENT)
        if len(answer.question.buried) > _SHOWN:
            yield f"and {len(answer.question.buried) - _SHOWN} more that layers hide"
        for note in answer.notes:
            yield ""
            yield from self._wrapped(f"Not known: {note}", "")

    def _summary(self) -> str:
        question = self._answer.question
        kinds = Counter(node.kind for node in question.nodes)
        parts = []
        for kind, number in kinds.items():
            noun, plural = _NOUNS.get(kind, (kind, f"{kind}s"))
            parts.append(f"{number} {noun if number == 1 else plural}")
        meaning = _KINDS[question.kind]
        return f"{question.text} ({meaning}) in {self._answer.source}: {', '.join(parts)}"

    def _nothing(self) -> Iterator[str]:
        answer = self._answer
        text, source = answer.question.text, answer.source
        if answer.notes and not answer.graph.is_partial:
            source = f"what was read of {source}"
        if answer.graph.is_partial:
            sentence = f"No finding of {source} is about {text}."
        elif answer.question.kind in ("backend", "vendor"):
            sentence = f"Nothing in {source} belongs to {text}."
        else:
            sentence = f"Nothing in {source} is called {text}, and nothing links or opens it."
        yield from self._wrapped(sentence, "")
        if answer.question.near:
            yield from self._wrapped(f"Nearly: {', '.join(answer.question.near)}", "")

    # One node

    def _subject(self, subject: AnsweredNode) -> Iterator[str]:
        node = subject.node
        head = self._paint(_cut(self._short(node.label)), "bold")
        yield head + (f"  {size(node.size)}" if node.size else "")
        if also := why.other_names(self._answer.question, node):
            yield from self._field("by a link or its SONAME it is also", listing(also, _SHOWN))
        yield from self._wrapped(self._state(subject), _INDENT)
        for chain in subject.chains:
            yield from self._chain(chain)
        if not subject.chains:
            yield from self._wrapped("no chain leads to it", _INDENT)
        yield from self._others(subject)
        if node.embedded is not None:
            yield from self._field("copy", why.copy(node.embedded))
        if subject.use is not None:
            yield from self._field("symbols", _symbols(subject.use))
        yield from self._linkers(subject)
        if subject.state in ("missing", "unfound") and not node.text and not self._graph.is_partial:
            for edge in subject.links[:1]:
                yield from self._field("searched", why.searched_places(edge))
        if subject.state in ("present", "opened") and node.kind == "file":
            openers = [self._short(self._graph.nodes[edge.source].label) for edge in subject.opens]
            if len(openers) > 1 or (openers and subject.state == "present"):
                yield from self._field("opened by", listing(openers, _SHOWN))
        begins = any(chain.start.id == node.id for chain in subject.chains)
        if node.kind == "file" and node.text and node.owner is None and not begins:
            yield from self._field("brought by", node.text)
        if subject.brought is not None:
            names = (self._graph.nodes[id].label for id in subject.brought.ids[:-1])
            yield from self._field("brought by", " → ".join(names))
        if subject.claims:
            others = listing((child.label for child in subject.claims), _SHOWN)
            text = f"{others}: what was installed last overwrote the other's file"
            yield from self._field("also listed by", text)
        put = why.layer(self._graph, node)
        if put is not None:
            yield from self._field("put there by", put)

    def _state(self, subject: AnsweredNode) -> str:
        node = subject.node
        links = {
            edge.source for edge in subject.links if edge.certain or subject.state == "unfound"
        }
        opens = {edge.source for edge in subject.opens}
        linked = f"linked by {count(len(links), 'file')}"
        opened = f"{count(len(opens), 'file')} may open it"
        match subject.state:
            case "linked":
                return f"{linked}, the shortest chain is:"
            case "unfound":
                return f"{linked}, and the loader does not find it for them; the shortest chain is:"
            case "missing" if self._graph.is_partial:
                return f"{linked}; the report does not say whether a file has that name:"
            case "missing" if node.text:
                return f"{linked}; no file has this name: it is {node.text}"
            case "missing" if self._graph.is_root:
                return f"{linked}, and not found by the loader:"
            case "missing":
                return (
                    f"{linked}, and not found by the loader (the system may have it: this is only "
                    "part of a system):"
                )
            case "opened":
                return f"nothing links it; {opened} by its name:"
            case "absent" if self._graph.is_partial:
                return f"no finding links it; {opened}:"
            case "absent":
                known = f" (it is {node.text})" if node.text else ""
                return f"no file has this name{known}, nothing links it; {opened}:"
            case "embedded":
                return "a copy inside another file, invisible to the loader:"
            case "installed":
                return "installed because of:"
            case "present":
                return "it is present; nothing links or names it, as far as can be seen:"

    def _others(self, subject: AnsweredNode) -> Iterator[str]:
        others = subject.count - len(subject.chains)
        if others <= 0 and not subject.more:
            return
        least = "more than " if subject.more else ""
        hint = " (--all prints them)" if len(subject.chains) == 1 else " (--format json has more)"
        yield from self._wrapped(f"and {least}{count(others, 'other chain')}{hint}", _INDENT)

    def _linkers(self, subject: AnsweredNode) -> Iterator[str]:
        """The other files that link it; first those that take the most from it."""
        in_chains = {id for chain in subject.chains for id in chain.ids}
        names = {
            self._graph.nodes[edge.source].label: None
            for edge in subject.links
            if edge.source not in in_chains and (edge.certain or subject.state == "unfound")
        }
        uses = {use.binary: use for use in subject.uses if use.binary in names}
        ordered = sorted(names, key=lambda name: -uses[name].count if name in uses else 0)
        if not ordered:
            return
        most = max(uses.values(), key=lambda use: use.count, default=None)
        if most is not None and most.count and subject.use is not None and not subject.use.count:
            yield from self._field("used by", f"{most.binary}: {_symbols(most)}")
        labels = (
            name.rpartition("/")[2] + (f" ({_usage(uses[name])})" if name in uses else "")
            for name in ordered
        )
        yield from self._field("also linked by", listing(labels, _SHOWN))

    def _chain(self, chain: Chain) -> Iterator[str]:
        reason = why.beginning(self._graph, chain.start)
        text = (
            f"{chain.start.label}: {chain.start.text}"
            if chain.start.kind == "line" and chain.start.text
            else chain.start.label
        )
        yield from self._hop(0, text, reason)
        for depth, edge in enumerate(chain.edges, 1):
            node = self._graph.nodes[edge.target]
            # What a copy is stands below the chain, and a line is shown with its text.
            is_redundant = edge.kind == "embeds" or (chain.start.text and edge.kind == "asks")
            reason = "" if is_redundant else why.reason(edge)
            yield from self._hop(depth, node.label, reason)

    def _hop(self, depth: int, label: str, reason: str) -> list[str]:
        lead = _INDENT * (depth + 1) + ("└ " if depth else "")
        text = self._short(label) + (f"  ({self._short(reason)})" if reason else "")
        return self._wrapped(text, lead, " " * len(lead) + _INDENT)

    # Many nodes

    def _rest(self, nodes: tuple[Node, ...]) -> Iterator[str]:
        yield from self._wrapped(
            f"and {len(nodes)} more (--all shows their chains; a narrower LIBRARY matches fewer):",
            "",
        )
        holders: dict[str, list[Node]] = {}
        for node in nodes:
            holder = self._graph.nodes.get(node.owner or "")
            owner = holder.label if holder is not None else ""
            holders.setdefault(owner, []).append(node)
        for owner, held in sorted(holders.items(), key=lambda item: (-len(item[1]), item[0])):
            names = listing((_name(node) for node in held), _SHOWN)
            yield from self._field(owner or "of no distribution", names)

    # Lines

    def _short(self, text: str) -> str:
        """`text` with … for the folder that most paths begin with."""
        if not self._site:
            return text
        return text.replace(f"/{self._site}", "…/").replace(self._site, "…/")

    def _field(self, name: str, text: str) -> list[str]:
        return self._wrapped(f"{name}: {self._short(text)}", _INDENT)

    def _wrapped(self, text: str, indent: str, further: str | None = None) -> list[str]:
        return wrapped(
            _cut(text), self._width, indent, indent + _INDENT if further is None else further
        )


def _cut(text: str) -> str:
    return _LONG.sub(r"\1…\2", printable(text))


def _site(answer: Answer) -> str:
    """The folder for packages that most of the shown files lie in, with a slash at its end."""
    counts: Counter[str] = Counter()
    for subject in answer.subjects:
        ids = [subject.node.id, *(id for chain in subject.chains for id in chain.ids)]
        for id in ids:
            path = answer.graph.nodes[id].label
            for name in ("site-packages/", "dist-packages/"):
                at = path.find(f"/{name}")
                if at >= 0 and answer.graph.nodes[id].kind in ("file", "python"):
                    counts[path[: at + 1 + len(name)]] += 1
    return counts.most_common(1)[0][0] if counts else ""


def _name(node: Node) -> str:
    """Return the name of a node in a list: for a copy, the file that holds it."""
    return node.embedded.path.rpartition("/")[2] if node.embedded else node.label.rpartition("/")[2]


def _usage(use: Use) -> str:
    """Return the amount of use of a link: `41 symbols`."""
    if use.unread is not None:
        return "symbols not known"
    return count(use.count, "symbol") if use.count else "for nothing"


def _symbols(use: Use) -> str:
    if use.unread is not None:
        return f"not known: {use.unread}"
    lacking = f"missing here: {listing(use.lacking, _SHOWN)}" if use.lacking else ""
    if not use.count:
        return lacking or f"none: {use.binary} does not use its link to {use.needed}"
    more = f" and {use.count - _SHOWN} more" if use.count > _SHOWN else ""
    return "; ".join(filter(None, (listing(use.names[:_SHOWN], _SHOWN) + more, lacking)))


def make_document(answer: Answer) -> dict[str, Json]:
    """The document that an answer makes."""
    graph, question = answer.graph, answer.question
    return {
        "schema": "buildmatrix/why/1",
        "source": answer.source,
        "question": {
            "text": question.text,
            "kind": question.kind,
            # How many nodes it means.
            "matches": len(question.nodes),
        },
        "answers": [_answer(graph, subject) for subject in answer.subjects],
        "others": [_node(graph, node) for node in answer.left_out],
        "near": [*question.near],
        "hidden": [
            {
                "path": buried.path,
                "files": buried.files,
                "size": buried.size,
                "names": [*buried.names],
                "replaced": buried.replaced,
                "layer": _layer(graph, buried.layer),
                "by": _layer(graph, buried.by),
            }
            for buried in question.buried
        ],
        "notes": [*answer.notes],
    }


def _answer(graph: Graph, subject: AnsweredNode) -> Json:
    return {
        **_node(graph, subject.node),
        "state": subject.state,
        "chains": [_chain(graph, chain) for chain in subject.chains],
        "found": subject.count,
        "more": subject.more,
        "brought": _chain(graph, subject.brought) if subject.brought is not None else None,
        "claims": [claim.label for claim in subject.claims],
        "links": [_incoming(graph, edge) for edge in subject.links],
        "opens": [_incoming(graph, edge) for edge in subject.opens],
        "symbols": plain(subject.use),
        "uses": plain(subject.uses),
    }


def _name_fields(node: Node) -> dict[str, Json]:
    return {"kind": node.kind, "name": node.label, "text": node.text}


def _node(graph: Graph, node: Node) -> dict[str, Json]:
    owner = graph.nodes.get(node.owner or "")
    return {
        **_name_fields(node),
        "size": node.size,
        "names": [*node.names],
        "distribution": owner.label if owner is not None else None,
        "layer": _layer(graph, node.layer),
        "copy": plain(node.embedded),
    }


def _layer(graph: Graph, index: int | None) -> Json:
    """A layer of an image, and where its instruction stands: `Dockerfile:12`, or the base image."""
    if index is None or not 0 <= index < len(graph.layers):
        return None
    layer = graph.layers[index]
    return {
        "index": index,
        "digest": layer.digest,
        "instruction": layer.instruction,
        "place": why.place(graph, index) or None,
    }


def _chain(graph: Graph, chain: Chain) -> Json:
    start: Json = {**_name_fields(chain.start), "reason": why.beginning(graph, chain.start)}
    hops: list[Json] = [
        {**_name_fields(graph.nodes[edge.target]), "reason": why.reason(edge), **plain(edge)}
        for edge in chain.edges
    ]
    return [start, *hops]


def _incoming(graph: Graph, edge: Edge) -> Json:
    return {"from": graph.nodes[edge.source].label, "reason": why.reason(edge), **plain(edge)}
