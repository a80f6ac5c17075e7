"""Requirements of a `pyproject.toml` by part, each with its line.

Formats: `[project]` (https://packaging.python.org/en/latest/specifications/pyproject-toml/) and
`[dependency-groups]` (PEP 735).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

from msgspec import Struct
from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.toml import mapping, string, strings, tables, tool_table
from buildmatrix.locks.lines import decode, load_toml, parse_requirement, read_bytes

#: Far above any real project file.
_LARGEST = 1024 * 1024
_MOST = 5000
#: Parts per expansion, each once per set of conditions.
_MOST_PARTS = 1000
#: `[table]`, not `[[table]]`.
_HEADER = re.compile(r"\s*\[\s*([^\[\]]*?)\s*\]")
_TOO_MANY = "its extras ask for one another in too many ways"


class ProjectRequirement(Struct, frozen=True):
    """One requirement of a project file."""

    #: The extra, `:` and the dependency group, or empty for unconditional requirements.
    part: str
    #: As written.
    text: str
    parsed: Requirement
    line: int

    @property
    def name(self) -> str:
        """Normalized name of the distribution."""
        return canonicalize_name(self.parsed.name)


class Project(Struct, frozen=True):
    """The requirements of a `pyproject.toml`."""

    label: str
    data: bytes
    text: str
    document: Mapping[str, object]
    requirements: tuple[ProjectRequirement, ...] = ()
    extras: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    #: Normalized; empty if the file has none.
    name: str = ""
    #: Invalid requirements, lists and groups.
    problems: tuple[Problem, ...] = ()

    @property
    def by_part(self) -> Mapping[str, Sequence[ProjectRequirement]]:
        """Requirements of each part."""
        by_part: dict[str, list[ProjectRequirement]] = {}
        for requirement in self.requirements:
            by_part.setdefault(requirement.part, []).append(requirement)
        return by_part

    def place(self, requirement: ProjectRequirement) -> str:
        """`pyproject.toml:7`."""
        return f"{self.label}:{requirement.line}"


def read_project(path: Path, label: str) -> Project:
    """Read the file; raises `SpecError` only if it is missing or not TOML."""
    data = read_bytes(path, label, "check the path", _LARGEST)
    text = decode(data, label)
    document = load_toml(text, label, None)
    problems: list[Problem] = []
    requirements = tuple(islice(_iter_requirements(document, text, label, problems), _MOST + 1))
    if len(requirements) > _MOST:
        raise SpecError([Problem(f"it asks for more than {_MOST} distributions", label)])
    project = mapping(document.get("project"))
    return Project(
        label=label,
        data=data,
        text=text,
        document=document,
        requirements=requirements,
        extras=frozenset(map(canonicalize_name, mapping(project.get("optional-dependencies")))),
        groups=frozenset(map(canonicalize_name, _read_groups(document))),
        name=canonicalize_name(string(project.get("name"))),
        problems=tuple(problems),
    )


def no_project_table(project: Project) -> SpecError:
    """Return the error of a file without a `[project]` table, which says what to name instead."""
    poetry = "poetry" in mapping(project.document.get("tool"))
    hint = f"name its {'`poetry.lock`' if poetry else 'lock'}, or a requirements file instead"
    return SpecError([Problem("there is no `[project]` table", project.label, hint=hint)])


def expand(project: Project, parts: Collection[str]) -> tuple[ProjectRequirement, ...]:
    """Return the requirements of parts, with the project's own extras expanded, as pip and uv do.

    `all = ["acme[docs]"]` in the project `acme` requires everything in its extra `docs`. A marker
    also applies to the requirements that the extra brings. A missing extra brings nothing. Raises
    `SpecError` if the extras include one another in too many ways.
    """
    expanded: dict[tuple[str, str, int], ProjectRequirement] = {}
    by_part = project.by_part
    for part, conditions in _reach(project, parts):
        for requirement in by_part.get(part, ()):
            if requirement.name != project.name:
                item = requirement
                if conditions:
                    narrowed = narrow(requirement.parsed, sorted(conditions))
                    item = replace(requirement, text=str(narrowed), parsed=narrowed)
                expanded.setdefault((item.part, item.text, item.line), item)
        if len(expanded) > _MOST:
            raise SpecError([Problem(_TOO_MANY, project.label)])
    return tuple(expanded.values())


def reachable_parts(project: Project, parts: Collection[str]) -> set[str]:
    """Return the parts that `parts` include, with themselves. Raises as `expand` does."""
    return {part for part, _ in _reach(project, parts)}


def _reach(project: Project, parts: Collection[str]) -> Sequence[tuple[str, frozenset[str]]]:
    """Return each part that is reached, with the markers of the way to it."""
    queue: list[tuple[str, frozenset[str]]] = [(part, frozenset()) for part in sorted(parts)]
    reached = {part: [conditions] for part, conditions in queue}
    by_part = project.by_part
    for part, conditions in queue:  # grows while it is walked
        if len(queue) > _MOST_PARTS:
            raise SpecError([Problem(_TOO_MANY, project.label)])
        for requirement in by_part.get(part, ()):
            if requirement.name != project.name:
                continue
            marker = requirement.parsed.marker
            inner = conditions | ({str(marker)} if marker is not None else set())
            for extra in sorted(map(canonicalize_name, requirement.parsed.extras)):
                before = reached.setdefault(extra, [])
                if not any(conditions_before <= inner for conditions_before in before):
                    before.append(inner)
                    queue.append((extra, inner))
    return queue


def narrow(requirement: Requirement, markers: Collection[str]) -> Requirement:
    """Return a requirement that only holds under further markers."""
    own = requirement.marker
    texts = [*markers, *([str(own)] if own is not None else [])]
    # Both were parsed before, so that one more pair of brackets is safe.
    narrowed = Requirement(str(requirement))
    narrowed.marker = Marker(" and ".join(f"({text})" for text in texts))
    return narrowed


def places(project: Project | None, parts: Collection[str]) -> Mapping[str, str]:
    """Return name → `file:line` of the requirements of `parts`; empty without a project.

    The first of several lines counts, those of the parts themselves before those of other extras.
    """
    try:
        requirements = expand(project, parts) if project is not None else ()
    except SpecError:
        return {}
    return {item.name: f"{project.label}:{item.line}" for item in reversed(requirements) if project}


def find_project(path: Path, label: str) -> Project | None:
    """Return the project in a file; None if it cannot be read."""
    try:
        return read_project(path, label)
    except SpecError:
        return None


def line_of_key(text: str, key: str, table: str = "") -> int:
    """Return the line that sets `key`, below the header `[table]` if there is one; 1 for none."""
    headers, keys = _key_lines(text)
    start = headers.get(table, 0)
    numbers = keys.get(key, [])
    after = bisect_right(numbers, start)
    return numbers[after] if after < len(numbers) else max(start, 1)


@lru_cache(maxsize=4)
def _key_lines(text: str) -> tuple[Mapping[str, int], Mapping[str, Sequence[int]]]:
    """Return the first line of each header, and the lines that set each key."""
    headers: dict[str, int] = {}
    keys: dict[str, list[int]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            headers.setdefault(header[1], number)
            continue
        left_side, equals, _ = line.partition("=")
        left_side = left_side.strip()
        for key in (
            {left_side.strip("\"'"), left_side.rpartition(".")[2].strip(" \t\"'")} if equals else ()
        ):
            keys.setdefault(key, []).append(number)
    return headers, keys


def _iter_requirements(
    document: Mapping[str, object], text: str, label: str, problems: list[Problem]
) -> Iterator[ProjectRequirement]:
    project = mapping(document.get("project"))
    lines = text.split("\n")
    start = line_of_key(text, "dependencies", "project")
    yield from _list("", project.get("dependencies"), lines, start, label, problems)
    optional = project.get("optional-dependencies", {})
    if not isinstance(optional, dict):
        start = line_of_key(text, "optional-dependencies", "project")
        hint = "write `[project.optional-dependencies]`"
        problems.append(Problem("`optional-dependencies` is not a table", label, start, hint=hint))
    for extra, items in mapping(optional).items():
        start = line_of_key(text, extra, "project.optional-dependencies")
        yield from _list(canonicalize_name(extra), items, lines, start, label, problems)
    yield from _group_requirements(_read_groups(document), text, label, problems)


def _read_groups(document: Mapping[str, object]) -> Mapping[str, object]:
    groups = dict(mapping(document.get("dependency-groups")))
    # uv's key before PEP 735 was accepted.
    old = tool_table(document, "uv").get("dev-dependencies")
    if isinstance(old, list):
        name = next((group for group in groups if canonicalize_name(group) == "dev"), "dev")
        listed = groups.get(name)
        groups[name] = [*(listed if isinstance(listed, list) else []), *old]
    return groups


def _group_requirements(
    groups: Mapping[str, object], text: str, label: str, problems: list[Problem]
) -> Iterator[ProjectRequirement]:
    """Yield the requirements of each group and of the groups it includes (PEP 735), each once.

    `packaging.dependency_groups` is not used: it has no lines, and a group that includes another
    twice doubles its requirements, so twenty small groups make a million.
    """
    if len(groups) > _MOST_PARTS:
        raise SpecError([Problem(f"it has more than {_MOST_PARTS} groups", label)])
    names: dict[str, str] = {canonicalize_name(group): group for group in groups}
    lines = text.split("\n")
    listed: dict[str, list[ProjectRequirement]] = {}
    includes: dict[str, list[str]] = {}
    for name, group in names.items():
        items = groups[group]
        start = line_of_key(text, group, "dependency-groups")
        listed[name] = list(_list(f":{name}", items, lines, start, label, problems, strict=False))
        inner = [string(mapping(table).get("include-group")) for table in tables(items)]
        includes[name] = list(
            dict.fromkeys(canonicalize_name(group_name) for group_name in inner if group_name)
        )
        for include in includes[name]:
            if include not in names:
                problem = f"the group `{group}` includes `{include}`: there is no such group"
                problems.append(Problem(problem, label, start))
    for name, group in names.items():
        queue, reached = [name], {name}
        for included in queue:  # grows while it is walked
            yield from (replace(item, part=f":{name}") for item in listed[included])
            new = [item for item in includes[included] if item in names and item not in reached]
            reached.update(new)
            queue += new
        if circle := next((included for included in queue if name in includes[included]), None):
            start = line_of_key(text, names[circle], "dependency-groups")
            problem = f"the group `{names[circle]}` includes `{group}`: a circle"
            problems.append(Problem(problem, label, start))


def _list(
    part: str,
    items: object,
    lines: Sequence[str],
    start: int,
    label: str,
    problems: list[Problem],
    *,
    strict: bool = True,
) -> Iterator[ProjectRequirement]:
    if items is not None and (
        not isinstance(items, list) or (strict and len(strings(items)) != len(items))
    ):
        name = part or "dependencies"
        problems.append(Problem(f"`{name}` is not an array of strings", label, start))
        return
    above = start
    for item in strings(items):
        # The items of a list follow one another.
        above = line = _find_line(item, lines, above) or _find_line(item, lines, start) or start
        try:
            requirement = parse_requirement(item)
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            problem = Problem(
                f"`{item}` is not a valid requirement: {reason}", label, line, hint="see PEP 508"
            )
            problems.append(problem)
            continue
        yield ProjectRequirement(part, item, requirement, line)


def _find_line(requirement: str, lines: Sequence[str], start: int) -> int | None:
    """Return the first line from `start` on with `requirement` as a TOML string."""
    escaped = requirement.replace("\\", "\\\\").replace('"', '\\"')
    forms = (f'"{escaped}"', f"'{requirement}'", f'"{requirement}"')
    for number in range(start, len(lines) + 1):
        if any(form in lines[number - 1] for form in forms):
            return number
    return None
