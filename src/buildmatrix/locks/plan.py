"""uv's inputs beyond the user's files, and their refinement until they hold.

Two settings of a specification cannot be expressed in one call of uv, because uv needs to know up
front what only the resolution shows:

* `index`: uv ties a distribution to an explicit index only if an input names it. So a first
  resolution searches the family's index before all others, which shows the members that the real
  one will have. They are then written as inputs of a generated project that ties each of them to
  the index, and the resolution is repeated with the index explicit: nothing else can come from it.
  Members that only the generated project requires are removed again.

* `replace`: uv can exclude a distribution, even a transitive one, but cannot rename it. So as soon
  as something requires the original, it is excluded and its twin is required in its place.

`refine` is a pure function from one resolution to the next plan; an unchanged plan is the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from packaging.utils import canonicalize_name

from buildmatrix.base.errors import Problem, SpecError, UsageError
from buildmatrix.base.text import without_login
from buildmatrix.locks.lines import RequirementLine, format_extras
from buildmatrix.matrix.model import Target

# Annotated requirements: the askers of each package.
#
# uv's PEP 751 output has no dependency edges and names no index. With `--annotation-style split
# --emit-index-annotation`, its requirements output has both as comments: `# via`, `#   -r
# requirements/base.in`, `#   sentence-transformers`, `# from https://wheels.example.com/cpu`.


_PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?\s*(?:==\s*([^\s;]+)|@\s*(\S+))")


class ResolvedNode(Struct, frozen=True):
    """One resolved distribution."""

    name: str
    #: None for a URL.
    version: str | None
    #: Its index, as shown by uv.
    index: str | None
    #: Askers as uv writes them: `name`, `-r file`, `-c file` or `project (pyproject.toml)`.
    via: tuple[str, ...]


def read_graph(text: str) -> Mapping[str, ResolvedNode]:
    """Parse the nodes of annotated output, by normalized name."""
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


#: Packages of the PyTorch indexes, without mirrored copies of common ones: the list of uv's own
#: `--torch-backend` (`crates/uv-torch/src/backend.rs`, read 2026-11).
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

#: Name of the generated project in uv's annotations and messages.
INDEX_PROJECT = "buildmatrix-index"


class Twin(Struct, frozen=True):
    """A distribution that is required in place of another."""

    name: str
    #: Requirement line with the version, extras and markers of the user's line.
    requirement: str
    #: Askers of the original: `file:line`, or as in `ResolvedNode.via`.
    asked_by: tuple[str, ...]
    #: The original's version: preferred for the twin, if it exists.
    version: str | None = None


class UvPlan(Struct, frozen=True):
    """uv's inputs beside the user's files."""

    excluded: frozenset[str] = frozenset()
    twins: tuple[Twin, ...] = ()
    #: Distribution → URL of the explicit index that it must come from.
    bound: Mapping[str, str] = field(default_factory=dict)
    #: Bound distributions that turned out not to be required.
    released: frozenset[str] = frozenset()


def index_of(name: str, target: Target) -> str | None:
    """Return the explicit index that `target` prescribes for a distribution, if any."""
    for family, url in target.index.items():
        if name in TORCH_FAMILY if family == "torch" else name == canonicalize_name(family):
            return url
    return None


def torch_backend(target: Target) -> str | None:
    """Return uv's name of the torch back end, unless `target` prescribes an index of the family."""
    return None if "torch" in target.index else target.torch


def is_from_its_index(node: ResolvedNode, target: Target) -> bool:
    """Return True if a node comes from its explicit index."""
    prescribed = index_of(node.name, target) or ""
    return without_login(node.index or "").rstrip("/") == without_login(prescribed).rstrip("/")


def first_plan(target: Target, lines: Sequence[RequirementLine]) -> UvPlan:
    """Return the plan from the lines alone. Raises `UsageError` for impossible replacements."""
    replaced = _make_replacements(target)
    twins = tuple(
        _twin_of_line(line, replaced[line.name]) for line in lines if line.name in replaced
    )
    excluded: set[str] = {canonicalize_name(name) for name in target.drop}
    excluded |= {line.name for line in lines if line.name in replaced}
    named = {line.name for line in lines} | {twin.name for twin in twins}
    return UvPlan(frozenset(excluded), twins, _make_bindings(named - excluded, target))


def refine(plan: UvPlan, graph: Mapping[str, ResolvedNode], target: Target) -> UvPlan:
    """Return the next plan after the resolution of `plan`; `plan` itself if it is final."""
    replaced = _make_replacements(target)
    originals = [node for name, node in graph.items() if name in replaced]
    twins = tuple(
        Twin(replaced[node.name], replaced[node.name], node.via, node.version) for node in originals
    )
    excluded = plan.excluded | {node.name for node in originals}
    released = plan.released | {
        name
        for name in plan.bound.keys() & graph.keys()
        if all(asker.startswith(INDEX_PROJECT) for asker in graph[name].via)
    }
    names = {*plan.bound, *_find_loose(plan, graph, target), *(twin.name for twin in twins)}
    return UvPlan(
        excluded, plan.twins + twins, _make_bindings(names - excluded - released, target), released
    )


def _find_loose(plan: UvPlan, graph: Mapping[str, ResolvedNode], target: Target) -> set[str]:
    """Return family members in `graph` to bind next.

    One that came from elsewhere, required by another such one, waits: its requester may require
    something else once it is bound to the index itself.
    """
    unbound = {name for name in graph if name not in plan.bound and index_of(name, target)}
    astray = {name for name in unbound if not is_from_its_index(graph[name], target)}
    return {
        name
        for name in unbound
        if name not in astray or any(asker not in astray for asker in graph[name].via)
    }


def _make_bindings(names: set[str], target: Target) -> dict[str, str]:
    urls = {name: index_of(name, target) for name in sorted(names)}
    return {name: url for name, url in urls.items() if url is not None}


def _make_replacements(target: Target) -> dict[str, str]:
    replaced: dict[str, str] = {
        canonicalize_name(name): canonicalize_name(twin) for name, twin in target.replace.items()
    }
    for name, twin in replaced.items():
        if twin in replaced:
            raise UsageError(
                f"{target.id}: `replace` turns {name} into {twin}, but replaces {twin} as well; "
                f"write the final replacement of {name}."
            )
    return replaced


def _twin_of_line(line: RequirementLine, twin: str) -> Twin:
    requirement = line.requirement
    if requirement.url is not None:
        raise SpecError(
            [
                Problem(
                    f"`{line.name}` has a URL, so `replace` cannot turn it into `{twin}`",
                    line.file,
                    line.line,
                    hint=f"write `{twin}` here, or require `{line.name}` by version",
                )
            ]
        )
    extras = format_extras(requirement.extras)
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return Twin(twin, f"{twin}{extras}{requirement.specifier}{marker}", (str(line),))
