"""What uv is given beyond the user's files, and how that is refined until it holds.

Two settings of a specification cannot be expressed in one call of uv, because uv wants to know up
front what only the resolution shows:

* `index`: uv ties a distribution to an explicit index only where an input names it. So a first
  resolution searches the family's index before all others, which shows the members that the real
  one will have. They are then written as inputs of a generated project that ties each of them to
  the index, and the resolution is repeated with the index explicit: nothing else can come from
  it. A member that only the generated project requires is taken out again.
* `replace`: uv can leave a distribution out, also when it is asked for transitively, but cannot
  rename one. So the original is left out and its twin asked for in its place, as soon as somebody
  wants the original.

`refine` is a pure function from one resolution to the next plan; an unchanged plan is the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from buildmatrix.base.errors import Problem, SpecError, UsageError
from buildmatrix.base.text import without_login
from buildmatrix.locks.lines import RequirementLine, bracketed
from buildmatrix.matrix.model import Target

# Askers of each package: uv's annotated requirements output.
#
# uv's PEP 751 output has no dependency edges and names no index. Its requirements output has both
# as comments, when asked with `--annotation-style split --emit-index-annotation`:
#
#     torch==2.9.1+cpu
#         # via
#         #   -r requirements/base.in
#         #   sentence-transformers
#         # from https://wheels.example.com/cpu


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


#: What lives on the PyTorch indexes beside mirrored copies of common packages: the list that uv's
#: own `--torch-backend` goes by (`crates/uv-torch/src/backend.rs`, read 2026-11).
TORCH_FAMILY = frozenset(
    {
        "fbgemm-gpu",
        "fbgemm-gpu-genai",
        "pytorch-triton",
        "pytorch-triton-rocm",
        "pytorch-triton-xpu",
        "torch",
        "torch-tensorrt",
        "torchao",
        "torcharrow",
        "torchaudio",
        "torchcodec",
        "torchcsprng",
        "torchdistx",
        "torchrec",
        "torchserve",
        "torchtext",
        "torchtune",
        "torchvision",
        "triton",
        "triton-rocm",
        "triton-xpu",
        "xformers",
    }
)

#: Name of the generated project; uv writes it into its annotations and messages.
INDEX_PROJECT = "buildmatrix-index"


@dataclass(frozen=True, slots=True)
class Twin:
    """A distribution that is asked for in place of another."""

    name: str
    #: A requirement line, with what the user's line said about version, extras and markers.
    requirement: str
    #: Who asked for the original: `file:line`, or askers as in `ResolvedNode.via`.
    asked_by: tuple[str, ...]
    #: The version that the original would have had: the twin's best choice, where it exists.
    version: str | None = None


@dataclass(frozen=True, slots=True)
class UvPlan:
    """Everything that uv is given beside the user's files."""

    excluded: frozenset[str] = frozenset()
    twins: tuple[Twin, ...] = ()
    #: Distribution → URL of the explicit index that it must come from.
    bound: Mapping[str, str] = field(default_factory=dict)
    #: What was bound and turned out not to be required.
    released: frozenset[str] = frozenset()


def index_of(name: str, target: Target) -> str | None:
    """The explicit index that `target` prescribes for a distribution, if any."""
    for family, url in target.index.items():
        if name in TORCH_FAMILY if family == "torch" else name == canonicalize_name(family):
            return url
    return None


def comes_from_its_index(node: ResolvedNode, target: Target) -> bool:
    """Whether a node that has an explicit index was really taken from it."""
    prescribed = index_of(node.name, target) or ""
    return without_login(node.index or "").rstrip("/") == without_login(prescribed).rstrip("/")


def first_plan(target: Target, lines: Sequence[RequirementLine]) -> UvPlan:
    """The plan that the lines alone give. Raises `UsageError` for what cannot be replaced."""
    replaced = _replacements(target)
    twins = tuple(
        _twin_of_line(line, replaced[line.name]) for line in lines if line.name in replaced
    )
    excluded: set[str] = {canonicalize_name(name) for name in target.drop}
    excluded |= {line.name for line in lines if line.name in replaced}
    named = {line.name for line in lines} | {twin.name for twin in twins}
    return UvPlan(frozenset(excluded), twins, _bindings(named - excluded, target))


def refine(plan: UvPlan, graph: Mapping[str, ResolvedNode], target: Target) -> UvPlan:
    """The next plan, given what `plan` resolved to; `plan` itself when nothing is left to do."""
    replaced = _replacements(target)
    originals = [node for name, node in graph.items() if name in replaced]
    twins = tuple(
        Twin(replaced[node.name], replaced[node.name], node.via, node.version) for node in originals
    )
    excluded = plan.excluded | {node.name for node in originals}
    released = plan.released | {name for name in plan.bound if _is_orphan(graph.get(name))}
    names = {*plan.bound, *_loose(plan, graph, target), *(twin.name for twin in twins)}
    return UvPlan(
        excluded, plan.twins + twins, _bindings(names - excluded - released, target), released
    )


def _is_orphan(node: ResolvedNode | None) -> bool:
    return node is not None and all(asker.startswith(INDEX_PROJECT) for asker in node.via)


def _loose(plan: UvPlan, graph: Mapping[str, ResolvedNode], target: Target) -> set[str]:
    """Family members in `graph` that are to be bound next.

    One that came from elsewhere, asked for by another such one, waits: its requester may ask for
    something else once it is bound to the index itself.
    """
    unbound = {name for name in graph if name not in plan.bound and index_of(name, target)}
    astray = {name for name in unbound if not comes_from_its_index(graph[name], target)}
    return {
        name
        for name in unbound
        if name not in astray or any(asker not in astray for asker in graph[name].via)
    }


def _bindings(names: set[str], target: Target) -> dict[str, str]:
    urls = {name: index_of(name, target) for name in sorted(names)}
    return {name: url for name, url in urls.items() if url is not None}


def _replacements(target: Target) -> dict[str, str]:
    replaced: dict[str, str] = {
        canonicalize_name(name): canonicalize_name(twin) for name, twin in target.replace.items()
    }
    for name, twin in replaced.items():
        if twin in replaced:
            raise UsageError(
                f"{target.id}: `replace` turns {name} into {twin}, which it replaces too; "
                f"say what {name} is to become in the end."
            )
    return replaced


def _twin_of_line(line: RequirementLine, twin: str) -> Twin:
    requirement = line.requirement
    if requirement.url is not None:
        raise SpecError(
            [
                Problem(
                    f"`{line.name}` is given by its URL, so `replace` cannot turn it into `{twin}`",
                    line.file,
                    line.line,
                    hint=f"name `{twin}` here, or ask for `{line.name}` by version",
                )
            ]
        )
    extras = bracketed(requirement.extras)
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return Twin(twin, f"{twin}{extras}{requirement.specifier}{marker}", (str(line),))
