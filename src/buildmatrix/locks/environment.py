"""Environments of conda (`environment.yml`, `conda env export`): what they ask pip and conda for.

Format: https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html.
`dependencies` holds match specifications (`numpy>=1.26`, `conda-forge::pytorch=2.1.0=cuda120*`) and
`pip:`, whose items conda writes into a requirements file beside the environment. Those are read as
such; of a conda package only its name is known here, for a channel is not a package index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import yaml
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.inventory.model import Unread
from buildmatrix.locks.lines import MOST_LINES, logical_lines, too_many
from buildmatrix.locks.model import Package
from buildmatrix.parsing import parse_specifiers
from buildmatrix.text import without_login

#: Conda packages that a sentence names, and characters of each.
_NAMED = 12
_LONGEST = 80
#: Characters of an environment. Exports have 30,000; the worst of these cost PyYAML two seconds.
LARGEST = 128 * 1024
#: `channel::name`, and what follows: a version, a build, or `[...]`.
_NAME = re.compile(r"(?:[^\s\[\]=]*::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*([^\[]*)")
#: A version of Python, perhaps with its build: `=3.12`, `==3.12.4`, `=3.12.4=h2b_0_cpython`.
_PYTHON = re.compile(r"(==?)?\s*(3(?:\.[0-9]+)*)(\.?\*)?(?:[=\s]\S+)?")


@dataclass(frozen=True, slots=True)
class Item:
    """One element of `dependencies`, or of its `pip` section."""

    text: str
    #: Its line, from 1, and the columns in front of it.
    line: int
    indent: int
    #: Whether it goes on in a next line with something else than hashes.
    joined: bool = False


@dataclass(frozen=True, slots=True)
class CondaEnvironment:
    """What an environment asks for."""

    conda: tuple[Item, ...]
    pip: tuple[Item, ...]

    def packages(self, label: str) -> tuple[Package, ...]:
        """The conda packages, by what is known of them: the name, and a version that is pinned."""
        return tuple(
            Package(canonicalize_name(name), _pin(version), None, (), False, (f"{label}:{line}",))
            for name, version, line in self._specifications()
        )

    def unread(self, label: str) -> tuple[Unread, ...]:
        """What conda installs, as one unread entry; none where it installs nothing."""
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
        """The lines of the requirements file that conda hands to pip."""
        for item in self.pip:
            for _, line, _ in logical_lines(item.text):
                yield replace(item, text=line)

    @property
    def python(self) -> str:
        """The range of Pythons (PEP 440) that is asked for; empty where any is."""
        for name, version, _ in self._specifications():
            if name == "python":
                return _pythons(version)
        return ""

    def _specifications(self) -> Iterator[tuple[str, str, int]]:
        for item in self.conda:
            if match := _NAME.match(item.text):
                yield match[1].lower(), match[2].strip(), item.line


def is_environment(name: str) -> bool:
    """Whether a file is an environment of conda by its name."""
    return name.endswith((".yml", ".yaml"))


def read_environment(text: str, label: str) -> CondaEnvironment:
    """Read an environment, called `label`; raises `SpecError` for what conda could not use.

    What it mentions is counted, and not what is written: an alias costs as much as what it is for.
    """
    if len(text) > LARGEST:
        raise SpecError([Problem(f"this environment is larger than {LARGEST >> 10} KiB", label)])
    conda, pip = list[Item](), list[Item]()
    mentioned = 0
    for node in _sequence(_value(_root(text, label), "dependencies"), label, "dependencies"):
        if not isinstance(node, yaml.MappingNode):
            conda.append(_item(node, label))
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            nodes = _sequence(value, label, "pip") if key.value == "pip" else ()
            mentioned += 1 + len(nodes)
            if mentioned > MOST_LINES:
                break
            pip += [_item(element, label) for element in nodes]
            if key.value != "pip":
                conda.append(_item(key, label))
        if mentioned + len(conda) > MOST_LINES:
            raise SpecError([too_many(label)])
    return CondaEnvironment(tuple(conda), tuple(pip))


def _root(text: str, label: str) -> yaml.Node:
    hint = "name an environment of conda, such as `conda env export` writes"
    try:
        # No value is made of a scalar: its text counts, also if it looks like a date or a number.
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        column = mark.column + 1 if mark is not None else None
        message = f"this is not YAML: {error.problem or error.context}"
        raise SpecError([Problem(message, label, line, column, hint)]) from error
    except RecursionError as error:
        raise SpecError([Problem("this environment is nested too deeply", label)]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Characters that YAML does not have, and numbers in escapes and in `%YAML`.
        message = str(error).splitlines()[0]
        raise SpecError([Problem(f"this is not YAML: {message}", label, hint=hint)]) from error
    if not isinstance(root, yaml.MappingNode) or _value(root, "dependencies") is None:
        problem = "this is not a conda environment: it has no `dependencies`"
        raise SpecError([Problem(problem, label, hint=hint)])
    return root


def _value(node: yaml.Node, name: str) -> yaml.Node | None:
    """The value of a key; the last one, as conda takes it."""
    last = None
    for key, value in node.value:
        if key.value == name:
            last = value
    return last


def _sequence(node: yaml.Node | None, label: str, name: str) -> Sequence[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        nodes: Sequence[yaml.Node] = node.value
        return nodes
    if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "~", "null")):
        return []
    raise SpecError([Problem(f"`{name}` is not a list", label, node.start_mark.line + 1)])


def _item(node: yaml.Node, label: str) -> Item:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode):
        raise SpecError([Problem("this is not a string; write one requirement", label, line)])
    return Item(node.value, line, node.start_mark.column)


def _pin(version: str) -> str:
    """The version in `=1.2`, `==1.2` and `=1.2=build`; empty for a range."""
    match = re.match(r"={1,2}\s*([0-9][A-Za-z0-9.!+_]*)(?:$|=)", version)
    return match[1] if match else ""


def _pythons(version: str) -> str:
    if match := _PYTHON.fullmatch(version):
        exact = match[1] == "==" and not match[3]
        return f"=={match[2]}" if exact else f"=={match[2]}.*"
    try:
        return str(parse_specifiers(version))
    except InvalidSpecifier:
        return ""
