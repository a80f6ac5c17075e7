"""Reader of requirements files, of the files they include, and of conda environments.

An audit and a lock for an image read the same lines and judge them differently. An image is built
from its lock alone, so a path on this machine is a mistake there (`RequirementSet.for_image`). For
an audit it names a distribution that is unknown until it is built.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.parsing import parse_specifiers
from buildmatrix.base.strict import YamlError, yaml_errors
from buildmatrix.base.text import without_login
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.locks.lines import (
    BYTE_ORDER_MARKS,
    INCLUDE,
    MOST_LINES,
    Place,
    decode,
    expand_variables,
    logical_lines,
    option_in,
    read_bytes,
    too_many,
)
from buildmatrix.locks.model import Package
from buildmatrix.locks.requirement_lines import (
    RequirementSet,
    add_editable,
    add_requirement,
    expand_local,
    local_path_problem,
)

if TYPE_CHECKING:
    import yaml

# Conda environments (`environment.yml`, `conda env export`).
#
# Format: https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html.
# `dependencies` has match specifications (`numpy>=1.26`, `conda-forge::pytorch=2.1.0=cuda120*`) and
# `pip:`, whose items conda writes into a requirements file beside the environment. Those are read
# as such; of a conda package only the name is known, as a channel is not a package index.


#: Conda packages per message, and characters of each.
_NAMED = 12
_LONGEST = 80
#: Maximum characters of an environment. Exports have 30,000; the worst of this size cost PyYAML two
#: seconds.
LARGEST_ENVIRONMENT = 128 * 1024
#: `channel::name`, and the rest: a version, a build, or `[...]`.
_NAME = re.compile(r"(?:[^\s\[\]=]*::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*([^\[]*)")
#: A version of Python, perhaps with its build: `=3.12`, `==3.12.4`, `=3.12.4=h2b_0_cpython`.
_PYTHON = re.compile(r"(==?)?\s*(3(?:\.[0-9]+)*)(\.?\*)?(?:[=\s]\S+)?")


class Item(Struct, frozen=True):
    """One element of `dependencies`, or of its `pip` section."""

    text: str
    #: Its line, from 1, and the columns in front of it.
    line: int
    indent: int
    #: True if more than hashes continue on the next line.
    joined: bool = False


class CondaEnvironment(Struct, frozen=True):
    """Requirements of an environment."""

    conda: tuple[Item, ...]
    pip: tuple[Item, ...]

    def packages(self, label: str) -> tuple[Package, ...]:
        """Return the conda packages with their known data: the name, and a pinned version."""
        return tuple(
            Package(
                canonicalize_name(name), _parse_pin(version), None, (), False, (f"{label}:{line}",)
            )
            for name, version, line in self._specifications()
        )

    def unread(self, label: str) -> tuple[Unread, ...]:
        """Return the packages that conda installs as one unread entry; empty if there are none."""
        if not self.conda:
            return ()
        shown = [without_login(item.text)[:_LONGEST] for item in self.conda]
        more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
        reason = (
            f"conda installs {', '.join(shown[:_NAMED])}{more} from channels, which audit does not "
            "read; create the environment and run `buildmatrix scan dir:PREFIX`"
        )
        return (Unread(f"{label}:{self.conda[0].line}", reason),)

    def pip_lines(self) -> Iterator[Item]:
        """Yield the lines of the requirements file that conda hands to pip."""
        for item in self.pip:
            for _, line, _ in logical_lines(item.text):
                yield replace(item, text=line)

    @property
    def python(self) -> str:
        """Range of Python versions (PEP 440); empty for any."""
        for name, version, _ in self._specifications():
            if name == "python":
                return _parse_pythons(version)
        return ""

    def _specifications(self) -> Iterator[tuple[str, str, int]]:
        for item in self.conda:
            if match := _NAME.match(item.text):
                yield match[1].lower(), match[2].strip(), item.line


def is_environment(name: str) -> bool:
    """Return True if a file is a conda environment by its name."""
    return name.endswith((".yml", ".yaml"))


def read_environment(text: str, label: str) -> CondaEnvironment:
    """Read an environment, called `label`; raises `SpecError` if conda could not use it.

    Size is counted with aliases expanded: an alias costs as much as its target.
    """
    import yaml

    if len(text) > LARGEST_ENVIRONMENT:
        raise SpecError(
            [Problem(f"this environment is larger than {LARGEST_ENVIRONMENT >> 10} KiB", label)]
        )
    conda, pip = list[Item](), list[Item]()
    mentioned = 0
    for node in _check_sequence(
        _find_value(_parse_root(text, label), "dependencies"), label, "dependencies"
    ):
        if not isinstance(node, yaml.MappingNode):
            conda.append(_make_item(node, label))
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            nodes = _check_sequence(value, label, "pip") if key.value == "pip" else ()
            mentioned += 1 + len(nodes)
            if mentioned > MOST_LINES:
                break
            pip += [_make_item(element, label) for element in nodes]
            if key.value != "pip":
                conda.append(_make_item(key, label))
        if mentioned + len(conda) > MOST_LINES:
            raise SpecError([too_many(label)])
    return CondaEnvironment(tuple(conda), tuple(pip))


def _parse_root(text: str, label: str) -> yaml.Node:
    import yaml

    hint = "name an environment of conda, such as `conda env export` writes"
    try:
        # Scalars are not converted: their text counts, even if it looks like a date or a number.
        with yaml_errors():
            root = yaml.compose(text, Loader=yaml.BaseLoader)
    except YamlError as error:
        place = error.line or None, error.column or None
        message = f"this is not YAML: {error}"
        raise SpecError([Problem(message, label, *place, hint)]) from error
    except RecursionError as error:
        raise SpecError([Problem("this environment is nested too deeply", label)]) from error
    if not isinstance(root, yaml.MappingNode) or _find_value(root, "dependencies") is None:
        problem = "this is not a conda environment: it has no `dependencies`"
        raise SpecError([Problem(problem, label, hint=hint)])
    return root


def _find_value(node: yaml.Node, name: str) -> yaml.Node | None:
    """Return the value of a key; the last one, as in conda."""
    last = None
    for key, value in node.value:
        if key.value == name:
            last = value
    return last


def _check_sequence(node: yaml.Node | None, label: str, name: str) -> Sequence[yaml.Node]:
    import yaml

    if isinstance(node, yaml.SequenceNode):
        nodes: Sequence[yaml.Node] = node.value
        return nodes
    if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "~", "null")):
        return []
    raise SpecError([Problem(f"`{name}` is not a list", label, node.start_mark.line + 1)])


def _make_item(node: yaml.Node, label: str) -> Item:
    import yaml

    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode):
        raise SpecError([Problem("this is not a string; write one requirement", label, line)])
    return Item(node.value, line, node.start_mark.column)


def _parse_pin(version: str) -> str:
    """Return the version in `=1.2`, `==1.2` and `=1.2=build`; empty for a range."""
    match = re.match(r"={1,2}\s*([0-9][A-Za-z0-9.!+_]*)(?:$|=)", version)
    return match[1] if match else ""


def _parse_pythons(version: str) -> str:
    if match := _PYTHON.fullmatch(version):
        exact = match[1] == "==" and not match[3]
        return f"=={match[2]}" if exact else f"=={match[2]}.*"
    try:
        return str(parse_specifiers(version))
    except InvalidSpecifier:
        return ""


# Requirements files. Format: https://pip.pypa.io/en/stable/reference/requirements-file-format/.


#: Far above any real requirements file: 1000 pins with twenty hashes each are 2 MB.
_LARGEST = 16 * 1024 * 1024
#: Included files: maximum depth, and maximum number.
_DEEPEST = 30
_MOST_FILES = 1000
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(\S.*)")
#: Options that affect the resolution, and that uv understands in a file.
_INDEX_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--no-index")
#: Options that affect download and installation.
_IGNORED = (
    "--trusted-host",
    "--require-hashes",
    "--prefer-binary",
    "--use-feature",
    "--only-binary",
    "--no-deps",
)
#: Output lines of `conda list --explicit` and `conda list --export`.
_CONDA = re.compile(r"@EXPLICIT|[A-Za-z0-9_][A-Za-z0-9_.-]*=[^=\s;@]+=[^=\s;@]+")


def read_requirements(path: Path, label: str) -> RequirementSet:
    """Read a requirements file and its includes; raises `SpecError` with all problems."""
    requirements = RequirementSet()
    add_file(requirements, path, label)
    check(requirements)
    return requirements


def check(requirements: RequirementSet) -> None:
    """Finish a set: raise `SpecError` with all problems, if there are any.

    Only then are all projects in local folders known.
    """
    expand_local(requirements)
    if requirements.problems:
        raise SpecError(list(dict.fromkeys(requirements.problems)))


def add_file(requirements: RequirementSet, path: Path, label: str) -> None:
    """Add a requirements file and its includes.

    Raises `SpecError` if it exceeds the limits.
    """
    _read_file(path, label, requirements, False, ())


def _read_file(
    path: Path,
    label: str,
    requirements: RequirementSet,
    constraint: bool,
    above: tuple[str, ...],
    number: int = 0,
) -> None:
    """`above` are the files that include this one, the last of them in line `number`."""
    if (label, constraint) in requirements.begun:
        return
    requirements.begun.add((label, constraint))
    if len(above) > _DEEPEST or len(requirements.begun) > _MOST_FILES:
        most = f"{_DEEPEST} files include one another"
        if len(above) <= _DEEPEST:
            most = f"{_MOST_FILES} files are included"
        raise SpecError([Problem(f"more than {most}", label)])
    try:
        data = read_bytes(path, label, "check the path", _LARGEST)
        text = decode(data, label, BYTE_ORDER_MARKS)
    except SpecError as error:
        requirements.problems += [
            _included(problem, label, above, number) for problem in error.problems
        ]
        return
    requirements.files[label] = data
    # uv would not read one for an image, and conda's packages would be missing from it.
    is_conda = not above and not requirements.for_image and is_environment(label)
    for item in (
        _iter_environment_items(text, label, requirements)
        if is_conda
        else _iter_requirement_items(text)
    ):
        number, line = item.line, item.text
        place = Place(label, number, path.parent, constraint, item.indent)
        if requirements.for_image and (unfit := _unfit(item, place)):
            requirements.problems.append(unfit)
        elif include := INCLUDE.fullmatch(line):
            name = expand_variables(include[2].strip("\"' "))
            if "://" in name:
                message = f"`{without_login(name)}` is read from the network"
                requirements.problems.append(
                    place.problem(message, hint="save it beside this file")
                )
                continue
            inner = posixpath.normpath(posixpath.join(posixpath.dirname(label), name))
            limits = constraint or include[1] in ("-c", "--constraint")
            _read_file(path.parent / name, inner, requirements, limits, (*above, label), number)
        elif editable := _EDITABLE.fullmatch(line):
            add_editable(editable[1], place, requirements)
        elif _CONDA.fullmatch(line):
            message = "this is conda's list of packages, which audit does not read"
            hint = "create the environment and run `buildmatrix scan dir:PREFIX`"
            requirements.problems.append(place.problem(message, hint=hint))
            return
        elif line.startswith("-"):
            _apply_option(line, place, requirements)
        else:
            add_requirement(line, place, requirements)


def _iter_requirement_items(text: str) -> Iterator[Item]:
    """Yield the lines of a requirements file."""
    physical = text.splitlines()
    for number, line, joined in logical_lines(text):
        first = physical[number - 1]
        yield Item(line, number, len(first) - len(first.lstrip()), joined)


def _iter_environment_items(text: str, label: str, requirements: RequirementSet) -> Iterator[Item]:
    """Yield the lines that conda hands to pip; note its own packages."""
    environment = read_environment(text, label)
    requirements.unread += environment.unread(label)
    requirements.conda += environment.packages(label)
    yield from environment.pip_lines()


def _unfit(item: Item, place: Place) -> Problem | None:
    """Return the problem of a line that an image's lock cannot have: uv reads it otherwise."""
    if item.joined:
        problem = "this line continues on the next one, which only its hashes may do"
        return place.problem(problem, hint="write it in one line")
    if _EDITABLE.fullmatch(item.text):
        return local_path_problem(item.text, place)
    if item.text == "--require-hashes":
        hint = "remove it: hashes of lines are checked anyway, and every locked file has one"
        return place.problem("`--require-hashes` is not supported", hint=hint)
    return None


def _included(problem: Problem, label: str, above: tuple[str, ...], number: int) -> Problem:
    """Return a problem of a file as a whole, at the line that includes the file."""
    if not above or problem.line is not None:
        return problem
    return Problem(f"{label}: {problem.message}", above[-1], number, hint=problem.hint)


def _apply_option(line: str, place: Place, requirements: RequirementSet) -> None:
    name, value = option_in(line)
    if name == "--no-binary":
        requirements.no_binary |= {
            part if part.startswith(":") else canonicalize_name(part)
            for part in re.split(r"[,\s]+", value)
            if part
        }
    elif name == "--pre":
        requirements.prerelease = True
    elif name in _INDEX_OPTIONS:
        if name == "--find-links" and "://" not in value:
            value = str((place.folder / expand_variables(value)).resolve())
        requirements.options.append(f"{name} {value}".strip())
    elif name not in _IGNORED and not requirements.for_image:
        problem = f"`{line.split()[0]}` is not an option of requirements files"
        requirements.problems.append(place.problem(problem, hint="see pip's documentation"))
