"""Library loads in Python files, and the reach of imports."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter

from buildmatrix.facts.inventory.distributions import Ownership
from buildmatrix.facts.inventory.listing import Listing
from buildmatrix.facts.inventory.memory import (
    PythonAnswer,
    PythonFacts,
    PythonMemory,
    is_unchanged,
    make_answer_key,
)
from buildmatrix.facts.inventory.model import Distribution, PythonLoad, Unparsed, Unread
from buildmatrix.facts.inventory.python_outside import MOST_SOURCE_IN_ALL, find_outside_imports
from buildmatrix.facts.inventory.workers import spread
from buildmatrix.facts.python_imports import Reach
from buildmatrix.facts.python_imports import program as python_program
from buildmatrix.facts.python_imports.module import (
    LoadingCode,
    Module,
    defines_operators,
    find_loading_code,
    library_argument,
    load_names,
    loading_call_name,
    needs_library_name,
)
from buildmatrix.facts.python_imports.parser import (
    children,
    evaluate_condition,
    evaluated_at_definition,
    has_line,
)
from buildmatrix.facts.python_imports.program import Program
from buildmatrix.facts.python_imports.source import LARGEST_SEARCHED, Outline
from buildmatrix.facts.python_imports.values import UNKNOWN, Scope, make_scope
from buildmatrix.facts.python_imports.walk import Walk
from buildmatrix.facts.trees.base import defect, reason

#: Names of the folders that Python imports from, on every system.
_SITES = ("site-packages/", "dist-packages/")


def read_python(
    listing: Listing,
    ownership: Ownership,
    distributions: Sequence[Distribution],
    binaries: Sequence[str],
    outlines: Mapping[str, Outline],
    memory: PythonMemory | None = None,
    folders: Collection[str] = (),
) -> PythonFacts:
    """Return the facts of all Python files with an outline; failures are noted in `listing`.

    `folders` are those that interpreters import from. Facts of distributions in `memory` are not
    computed again.
    """
    sites = {item.owner: item.site for item in distributions}
    groups: dict[tuple[str, str], tuple[dict[str, Outline], list[str]]] = {}
    for path in chain(outlines, binaries):
        owner = ownership.owners.get(path)
        group = (owner, sites[owner]) if owner in sites else _guess_owner(path)
        if group is not None:
            sources, libraries = groups.setdefault(group, ({}, []))
            if path in outlines:
                sources[path] = outlines[path]
            else:
                libraries.append(path)
    work: list[_DistributionWork] = []
    for (name, site), (sources, libraries) in sorted(groups.items(), key=lambda entry: entry[0]):
        if libraries or any(outline.loads for outline in sources.values()):
            size = sum(listing.files[path].size for path in sources)
            # A module whose tree was dropped in between is parsed, and counted, again.
            budget = min(2 * size, python_program.MOST_SOURCE)
            work.append(_DistributionWork(name, site, sources, libraries, budget))
    remaining = python_program.MOST_SOURCE_IN_ALL
    for entry in sorted(work, key=lambda entry: entry.budget):
        entry.budget = min(entry.budget, remaining)
        remaining -= entry.budget

    recalled: list[PythonFacts] = []
    if memory is not None:
        every_entry, work = work, []
        for entry in every_entry:
            # Everything that `_analyze` depends on.
            inputs = (entry.name, entry.site, entry.budget, *sorted(entry.libraries))
            files = (listing.files[path] for path in sorted(entry.sources))
            entry.key = make_answer_key(memory, "loads", inputs, files)
            answer = memory.recall_python(entry.key) if entry.key is not None else None
            if answer is not None:
                recalled.append(answer.facts)
            else:
                work.append(entry)

    rest = min(MOST_SOURCE_IN_ALL, sum(listing.files[path].size for path in outlines))

    def outside() -> _WorkResult:
        before = listing.bytes_read
        imports, answers = find_outside_imports(
            listing, ownership, distributions, binaries, outlines, memory, folders
        )
        # This may run in a copy of the process: the caller adds the bytes read.
        bytes_read, listing.bytes_read = listing.bytes_read - before, before
        return _WorkResult(imports, bytes_read=bytes_read, answers=answers)

    # Parsing costs about twenty times as much as reading. A single distribution gets no second
    # process: both would copy all facts of the tree, to save a fifth of the time.
    weight = 20 if len(work) > 1 else 1

    def attempt(index: int) -> _WorkResult:
        entry = work[index] if index < len(work) else None
        try:
            return outside() if entry is None else _analyze(listing, entry, memory)
        # A defect in the files of one distribution must not affect the others.
        except Exception as error:
            place = "Python files" if entry is None else entry.site + entry.name
            return _WorkResult(PythonFacts(), [Unread(place, defect(error))])

    results = spread(attempt, [weight * size for size in (*(item.budget for item in work), rest)])
    for result in results:
        listing.unread.extend(result.unread)
        listing.bytes_read += result.bytes_read
        if memory is not None:
            for key, answer in result.answers.items():
                memory.keep_python(key, answer)
    every = [*recalled, *(result.facts for result in results)]
    loads = chain.from_iterable(facts.loads for facts in every)
    unparsed = chain.from_iterable(facts.unparsed for facts in every)
    return PythonFacts(
        tuple(sorted(loads, key=attrgetter("path", "line", "call"))),
        tuple(sorted(unparsed, key=attrgetter("path"))),
        tuple(chain.from_iterable(facts.imports for facts in every)),
        {path: reached for facts in every for path, reached in facts.reach.items()},
    )


@dataclass(slots=True)
class _DistributionWork:
    """One distribution to analyze."""

    #: `name==version`, or the top-level name of files without a distribution.
    name: str
    site: str
    sources: Mapping[str, Outline]
    libraries: Sequence[str]
    budget: int
    #: Key of everything that its facts depend on, if a memory can name all of it.
    key: str | None = None


@dataclass(frozen=True, slots=True)
class _WorkResult:
    """Result of one piece of work, possibly from a copy of the process."""

    facts: PythonFacts
    unread: Sequence[Unread] = ()
    bytes_read: int = 0
    #: Answers for the memory to keep.
    answers: Mapping[str, PythonAnswer] = field(default_factory=dict)


def _analyze(listing: Listing, work: _DistributionWork, memory: PythonMemory | None) -> _WorkResult:
    """Analyze one distribution."""
    files = listing.files
    unread: list[Unread] = []
    bytes_read = 0
    is_whole = True

    def read(path: str) -> bytes | None:
        nonlocal bytes_read, is_whole
        if files[path].size > LARGEST_SEARCHED:
            program.unparsed[path] = (
                f"larger than {LARGEST_SEARCHED} bytes: only its beginning was searched"
            )
            return None
        try:
            data = listing.tree.read_bytes(files[path].path, LARGEST_SEARCHED)
        except OSError as error:
            unread.append(Unread(path, reason(error)))
            return None
        bytes_read += len(data)
        is_whole = is_whole and is_unchanged(memory, files[path], data)
        return data

    program = Program(work.site, work.sources, work.libraries, read, work.budget)
    python_loads, walk = _find_loads(program)
    owner = work.name if "==" in work.name else None
    unparsed: list[Unparsed] = []
    for path, why in {**program.partial, **program.unparsed}.items():
        reach = walk.unread.get(path, "lazy")
        if reach == "import":
            unread.append(Unread(path, why))
        unparsed.append(Unparsed(path, why, owner, reach))
    if program.incomplete:
        why = "too much source: not all of its imports were followed"
        unparsed.append(Unparsed(work.site + work.name, why, owner, "unknown"))
    loads = []
    unreached: tuple[Reach, frozenset[str]]
    unreached = ("unknown" if program.incomplete else "lazy", frozenset())
    for load in python_loads:
        place = (load.path, load.line, load.call == "find_library")
        reach, names = walk.loads.get(place, unreached)
        found = tuple(sorted(names)) or load.names
        loads.append(replace(load, names=found, reach=reach, owner=owner))
    program.drop_trees()
    facts = PythonFacts(tuple(loads), tuple(unparsed), reach=walk.binaries)
    # An unreadable file may be readable next time.
    is_whole = is_whole and not unread
    answers = {work.key: PythonAnswer(facts)} if work.key is not None and is_whole else {}
    return _WorkResult(facts, unread, bytes_read, answers)


def _guess_owner(path: str) -> tuple[str, str] | None:
    """Return top-level name and folder of a file in a site-packages that no RECORD lists."""
    for site in _SITES:
        at = path.rfind(site)
        if at >= 0:
            start = at + len(site)
            return path[start:].partition("/")[0].partition(".")[0], path[:start]
    return None


def _find_loads(program: Program) -> tuple[list[PythonLoad], Walk]:
    """Return every loading call of the program, and a walk over its imports."""
    loads: list[PythonLoad] = []
    module_loads: dict[str, LoadingCode] = {}
    for path, outline in sorted(program.outlines.items()):
        module = program.module(program.names[path]) if outline.loads else None
        if module is None:
            continue
        try:
            loads.extend(_LoadFinder(program, module).all())
            module_loads[module.name] = find_loading_code(module)
        except RecursionError:
            program.unparsed[path] = "nested too deep to be followed"
        except Exception as error:
            program.unparsed[path] = defect(error)
        del module  # Frees its tree before the next one is parsed.
    walk = Walk(program, module_loads)
    walk.run()
    return loads, walk


class _LoadFinder:
    """Finds all calls of one module that load a library."""

    def __init__(self, program: Program, module: Module) -> None:
        self._program = program
        self._module = module

    def all(self) -> Iterator[PythonLoad]:
        """Yield the calls in the order of the syntax tree."""
        yield from self._block(self._module.tree.body, self._module.scope)

    def _block(self, body: Iterable[ast.AST], scope: Scope) -> Iterator[PythonLoad]:
        for node in body:
            yield from self._node(node, scope)

    def _node(self, node: ast.AST, scope: Scope) -> Iterator[PythonLoad]:
        # Most statements have no word of a loading call.
        if isinstance(node, ast.stmt) and not has_line(node, self._module.loading_lines):
            return
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from self._block(evaluated_at_definition(node), scope)
                inner, given = make_scope(node.body, scope), node.args
                names = (*given.posonlyargs, *given.args, *given.kwonlyargs)
                inner.bound = {parameter.arg: UNKNOWN for parameter in names}
                yield from self._block(node.body, inner)
                return
            case ast.Lambda():
                yield from self._block(evaluated_at_definition(node), scope)
                yield from self._node(node.body, scope)
                return
            case ast.If() if (outcome := evaluate_condition(node.test)) is not None:
                yield from self._block(node.body if outcome else node.orelse, scope)
                return
            case ast.Call() if (load := self._load(node, scope)) is not None:
                yield load
        yield from self._block(children(node), scope)

    def _load(self, node: ast.Call, scope: Scope) -> PythonLoad | None:
        call = loading_call_name(node)
        if call is None or self._program.find_function(self._module, node.func) is not None:
            return None
        evaluator = self._program.make_evaluator(self._module, scope)
        names = load_names(call, evaluator.value(library_argument(node)))
        if needs_library_name(call) and (not names or defines_operators(self._module)):
            return None
        return PythonLoad(self._module.path, node.lineno, call, names)
