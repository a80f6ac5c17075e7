"""`buildmatrix.toml` → `Spec`, or every problem of the file at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Protocol, cast

from buildmatrix.base.parsing import natural
from buildmatrix.matrix.document import Problems, closest, did_you_mean, quoted, read
from buildmatrix.matrix.keys import (
    NodeClassTable,
    PolicyTable,
    SpecFile,
    TextsByBackend,
    VulnerabilitiesTable,
    WaiverTable,
)
from buildmatrix.matrix.matrix import Matrix, choose, expand, suggest
from buildmatrix.matrix.model import (
    DEFAULT_OUTPUT,
    DEFAULT_TOOLS,
    STATE,
    AcceptedAdvisory,
    Listed,
    Lists,
    NodeClass,
    Policy,
    PolicySeverity,
    RuleSeverity,
    Spec,
    VulnerabilityPolicy,
    Waiver,
)
from buildmatrix.matrix.settings import (
    build,
    check_backend_name,
    copied_paths,
    data_files,
    short_commit,
    sound,
    value,
)
from buildmatrix.matrix.shapes import SourceText, SpecNode, Table, group, many, row
from buildmatrix.matrix.targets import TargetContext, build_targets

# `[[waive]]`


class WaiversFile(Table):
    """A file with only waivers."""

    waive: tuple[WaiverTable, ...] = group(many(row(WaiverTable)), "Findings that are accepted.")


def load_waivers(path: Path, ids: Sequence[str] | None) -> tuple[Waiver, ...]:
    """Load the waivers of a file, checked like those of a specification.

    `ids` are the targets: each pattern must match one. None without a specification. Raises
    `SpecError` with all problems of the file.
    """
    problems = Problems(str(path))
    document = read(path, problems, absent="name a file with [[waive]] tables")
    file = row(WaiversFile).read(document.values, SpecNode(document, problems))
    waivers = tuple(build_waiver(waive, ids, (), problems) for waive in file.waive)
    problems.stop()
    return waivers


def build_waiver(
    waive: WaiverTable, ids: Sequence[str] | None, gone: Sequence[str], problems: Problems
) -> Waiver:
    """Build a waiver; note patterns that match none of `ids`. `gone` are excluded identifiers."""
    if ids is not None:
        choose(waive.select, ids, gone, problems)
    return build(Waiver, waive)


# `[policy]`


def build_policy(file: SpecFile, ids: Sequence[str], problems: Problems) -> Policy:
    """Build the policy of a file; note backends and targets that are not among `ids`."""
    table = file.policy
    # Allowed and forbidden names of each kind.
    pairs = [
        (table.allow_distributions, table.forbid_distributions),
        (table.allow_libraries, table.forbid_libraries),
        (table.allow_licenses, table.forbid_licenses),
    ]
    for allowed, forbidden in pairs:
        _check_lists(allowed, forbidden, problems)
    for budget in (table.max_size, table.max_download, table.max_foreign, table.max_layers):
        _check_budget(budget, file, ids, problems)
    by_backend = (table.allow_unresolved, table.forbid_env, table.gates, *chain(*pairs))
    severities = tuple(_severities(table))
    for name, at in (
        *((name, table.at) for mapping in by_backend for name in mapping),
        *((entry.backend, entry.position) for entry in severities),
    ):
        if name != "*":
            check_backend_name(name, at, file, problems)
    allow, forbid = (Lists(*map(_listed, kinds)) for kinds in zip(*pairs, strict=True))
    return build(
        Policy,
        table,
        vulnerabilities=_vulnerabilities(table.vulnerabilities, problems),
        severities=severities,
        allow=allow,
        forbid=forbid,
    )


def _listed(by_backend: TextsByBackend) -> Mapping[str, tuple[Listed, ...]]:
    return {
        name: tuple(Listed(text.value, text.at) for text in sound(texts))
        for name, texts in by_backend.items()
    }


def _check_budget(
    budget: Mapping[str, object], file: SpecFile, ids: Sequence[str], problems: Problems
) -> None:
    """Note keys that name nothing, and overlapping patterns."""
    at = file.policy.at
    first: dict[str, str] = {}
    for key in budget:
        if key in ("*", *file.backend, *ids):
            continue
        if not any(character in key for character in "*?["):
            check_backend_name(key, at, file, problems)
            continue
        matching = [id for id in ids if fnmatchcase(id, key)]
        if not matching:
            message = f"no target matches `{key}`"
            problems.doubt(at, message, suggest(key, ids))
        for id in matching:
            other = first.setdefault(id, key)
            if other != key and id not in budget:
                problems.add(
                    at,
                    f"`{other}` and `{key}` both give {id} a budget",
                    f"write one for `{id}` itself, or patterns that do not overlap",
                    mistake=f"{other} {key}",
                )


def _check_lists(allowed: TextsByBackend, forbidden: TextsByBackend, problems: Problems) -> None:
    """Note names that are both forbidden and allowed for a backend or for all."""
    for name, texts in allowed.items():
        for key in dict.fromkeys(("*", name)):
            places = {text.value: text.at for text in sound(forbidden.get(key, ()))}
            for text in sound(texts):
                if text.value in places:
                    problems.add(
                        text.at,
                        f"{quoted(text.value)} is allowed here, but forbidden in line "
                        f"{places[text.value].line}",
                        "keep one of the two",
                    )


def _severities(table: PolicyTable) -> Iterator[RuleSeverity]:
    for rule, said in table.severity.items():
        texts = {"*": said} if isinstance(said, SourceText) else said
        for backend, text in texts.items():
            if text.sound:
                severity = cast(PolicySeverity, text.value)  # `kinds` lets nothing else through
                yield RuleSeverity(rule, backend, severity, text.at)


def _vulnerabilities(table: VulnerabilitiesTable, problems: Problems) -> VulnerabilityPolicy:
    is_osv = table.service is not None and table.service.value == "osv"
    if table.url is not None and not is_osv:
        hint = 'write `service = "osv"` too'
        problems.doubt(table.url.at, "only an OSV service has a `url`", hint)
    return build(
        VulnerabilityPolicy,
        table,
        ignore=tuple(build(AcceptedAdvisory, entry) for entry in table.ignore),
    )


class BackendDescription(Protocol):
    """The catalogue's description of a backend, as needed here."""

    @property
    def aliases(self) -> Collection[str]:
        """Other names of it."""

    @property
    def products(self) -> Collection[str]:
        """Names of its devices; globs."""

    def has_product(self, name: str) -> bool:
        """Return True if one of its devices has this name."""


#: Names of backends, or their descriptions; or a function that returns them for data files of the
#: user.
BackendNames = Collection[str] | Mapping[str, BackendDescription]
Backends = BackendNames | Callable[[tuple[Path, ...]], BackendNames]


def load_spec(path: Path, backends: Backends | None = None) -> Spec:
    """Read, check and expand a specification.

    Args:
        path: the TOML file. Requirement files that it names must exist below its folder.
        backends: names of the catalogue's backends with their aliases, or a function that gets them
            from the specification's data files; None accepts any name.

    Raises:
        SpecError: the file is missing, unreadable or wrong; holds all problems, in file order. If
            one of its data files is wrong, only that is reported.
    """
    problems = Problems(str(path))
    document = read(path, problems, absent="run `buildmatrix init`, or name a file with -f")
    file = row(SpecFile).read(document.values, SpecNode(document, problems))
    own = data_files(file.catalogue, path.parent, problems)
    if callable(backends):
        backends = backends(tuple(path.parent / name for name in own))
    # The missing data file may be the one that describes the backend.
    complete = "catalogue" not in document.values or 0 < len(own) == len(file.catalogue.files)
    _check_backends(file, backends, problems, doubtful=not complete)
    matrix = expand(file, problems)
    node_classes = tuple(
        _node_class(name, table, file, matrix, problems) for name, table in file.node_class.items()
    )
    for table in file.node_class.values():
        _check_products(table, backends, problems, doubtful=not complete)
    targets = build_targets(
        TargetContext(
            file=file,
            path=path,
            matrix=matrix,
            node_classes=node_classes,
            commit=functools.cache(lambda: short_commit(path.parent)),
            problems=problems,
        )
    )
    _check_variants(file, matrix, problems)
    _check_smoke_names(file, problems)
    tools = {name: getattr(file.tools, name) for name in DEFAULT_TOOLS}
    spec = Spec(
        path=path,
        project=file.project.name.value,
        version=file.project.version.value,
        source=file.project.source.value if file.project.source else None,
        targets=targets,
        excluded=matrix.excluded,
        subsets=_subsets(file, matrix, problems),
        node_classes=node_classes,
        policy=build_policy(file, matrix.ids, problems),
        waivers=tuple(
            build_waiver(waive, matrix.ids, matrix.gone, problems) for waive in file.waive
        ),
        output=_output(file, problems),
        tools=DEFAULT_TOOLS | {name: text.value for name, text in tools.items() if text},
        catalogue=own,
        copied=copied_paths(file),
    )
    problems.stop()
    return spec


def _check_backends(
    file: SpecFile, backends: BackendNames | None, problems: Problems, *, doubtful: bool
) -> None:
    if not file.backend:
        problems.doubt(file.at, "there is no backend", "add a table such as [backend.cpu]")
    for name, table in file.backend.items():
        if backends is not None and name not in backends:
            aliases = backends if isinstance(backends, Mapping) else {}
            usual_name = next(
                (usual for usual, backend in aliases.items() if name in backend.aliases), None
            )
            hint = f"it is called `{usual_name}` here" if usual_name else None
            hint = hint or did_you_mean(name, sorted(backends), "backends")
            message = f"unknown backend {quoted(name)}"
            problems.add(table.at, message, hint, doubtful=doubtful)


def _check_variants(file: SpecFile, matrix: Matrix, problems: Problems) -> None:
    variants = {point.variant: None for point in matrix.points}
    for name, table in file.variant.items():
        if name not in variants:
            near = did_you_mean(name, variants, "variants")
            hint = f"name it in `variant` of [defaults] or of a backend ({near})"
            problems.doubt(table.at, f"no target has the variant `{name}`", hint)


def _check_smoke_names(file: SpecFile, problems: Problems) -> None:
    names: set[str] = set()
    for smoke in file.smoke:
        if smoke.name.sound and smoke.name.value in names:
            message = f"another smoke command is called `{smoke.name.value}` already"
            problems.add(smoke.name.at, message, "give each its own name")
        names.add(smoke.name.value)


def _subsets(file: SpecFile, matrix: Matrix, problems: Problems) -> dict[str, tuple[str, ...]]:
    subsets = {}
    for name, table in file.subset.items():
        ids = set(choose(table.select, matrix.ids, matrix.gone, problems))
        points = [point for point in matrix.points if point.id in ids]
        if table.latest:
            latest: dict[str, str] = {}
            for point in sorted(points, key=lambda point: natural(point.runtime)):
                latest[point.backend] = point.runtime
            points = [point for point in points if latest[point.backend] == point.runtime]
        subsets[name] = tuple(point.id for point in points)
    return subsets


def _node_class(
    name: str, table: NodeClassTable, file: SpecFile, matrix: Matrix, problems: Problems
) -> NodeClass:
    if table.backend.sound:
        check_backend_name(table.backend.value, table.backend.at, file, problems)
    choose(table.runs, matrix.ids, matrix.gone, problems)
    return build(NodeClass, table, name=name, driver=value(table.driver))


def _check_products(
    table: NodeClassTable, backends: BackendNames | None, problems: Problems, *, doubtful: bool
) -> None:
    if not isinstance(backends, Mapping) or table.backend.value not in backends:
        return
    own = backends[table.backend.value]
    for product in sound(table.products):
        if own.has_product(product.value):
            continue
        others = [name for name, other in backends.items() if other.has_product(product.value)]
        if not others:
            hint = closest(product.value, own.products)
            hint = f"did you mean `{hint}`? If not, " if hint else ""
            problems.add(
                product.at,
                f"the catalogue knows no product {quoted(product.value)}",
                f"{hint}write its `archs` instead, or describe it in a data file "
                "(docs/catalogue.md, [[products]])",
                doubtful=doubtful,
            )
        elif own.products:
            # Backends without devices of their own, such as `vulkan`, run on all.
            message = (
                f"{quoted(product.value)} is a device of the backend "
                f"{' and '.join(map(quoted, others))}, and this class is for {table.backend.value}"
            )
            problems.add(product.at, message)


def _output(file: SpecFile, problems: Problems) -> str:
    text = file.generate.output
    if text is None:
        return DEFAULT_OUTPUT
    output = text.value.removeprefix("./").rstrip("/")
    if text.sound and output in {"", "."}:
        hint = f"write a folder of its own, such as `{DEFAULT_OUTPUT}`"
        problems.add(text.at, "generated files cannot be in the specification's folder", hint)
    if text.sound and f"{output}/".startswith(f"{STATE}/"):
        hint = f"write a folder beside it, such as `{DEFAULT_OUTPUT}`"
        problems.add(text.at, f"`{STATE}` is reserved for local state", hint)
    return output
