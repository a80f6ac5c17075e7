"""Who asked for what: uv's annotated requirements output.

uv's PEP 751 output has no dependency edges and names no index. Its requirements output has both
as comments, when asked with `--annotation-style split --emit-index-annotation`:

    torch==2.9.1+cpu
        # via
        #   -r requirements/base.in
        #   sentence-transformers
        # from https://wheels.example.com/cpu
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

_PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?\s*(?:==\s*([^\s;]+)|@\s*(\S+))")


@dataclass(frozen=True, slots=True)
class ResolvedNode:
    """One resolved distribution."""

    name: str
    #: None for what is taken from a URL.
    version: str | None
    #: Index that it comes from, as uv shows it.
    index: str | None
    #: Askers as uv writes them: `name`, `-r file`, `-c file` or `project (pyproject.toml)`.
    via: tuple[str, ...]


def read_graph(text: str) -> Mapping[str, ResolvedNode]:
    """The nodes of annotated output, by normalized name."""
    nodes: dict[str, ResolvedNode] = {}
    name, version, index, via = "", None, None, list[str]()

    def close() -> None:
        if name:
            nodes[name] = ResolvedNode(name, version, index, tuple(via))

    for line in text.splitlines():
        comment = line.strip()
        if not line.startswith((" ", "#")) and (match := _PACKAGE.match(line)):
            close()
            name, version, index, via = canonicalize_name(match.group(1)), match.group(2), None, []
        elif comment.startswith("# from "):
            index = comment.removeprefix("# from ")
        elif comment.startswith("# via "):
            via.append(comment.removeprefix("# via "))
        elif comment.startswith("#   "):
            via.append(comment.removeprefix("#   "))
    close()
    return nodes
