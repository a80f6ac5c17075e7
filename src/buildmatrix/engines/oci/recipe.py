"""Translation of a target's Dockerfile into steps that need no shell.

The Dockerfile is the only description of an image, and is parsed instruction by instruction. The
only supported RUN commands are those of our own macros, which are implemented here. A user's
template may change everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct

from buildmatrix.base.errors import Problem
from buildmatrix.engines.dockerfile import (
    add_build_parts,
    build_of,
    builtin_templates,
    dockerfile,
    make_environment,
    package_manager,
    render_piece,
    template_of,
)
from buildmatrix.engines.instructions import (
    DockerfileError,
    DockerfileInstruction,
    Stage,
    Word,
    array,
    instructions,
    pairs,
    stages,
    word,
    words,
)
from buildmatrix.engines.oci.apt import missing_programs
from buildmatrix.locks.model import Lock
from buildmatrix.locks.selection import refusal
from buildmatrix.matrix.model import Spec, Target, User

#: Hint that always applies.
WITH_DOCKER: Final = "build with `--engine docker`"
#: Placeholder of the list of packages in macros.
_PACKAGES: Final = "zzpackageszz"
#: Variables that affect uv, or its choice of Python.
_OF_BUILD = re.compile(r"UV_.*|PIP_.*|PYTHON.*|PATH|HOME|VIRTUAL_ENV|LD_.*|SSL_.*|.*_proxy", re.I)


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of the last stage."""

    at: DockerfileInstruction


class Environment(Step):
    """Add the virtual environment."""


@dataclass(frozen=True, slots=True)
class Account(Step):
    """Add a user."""

    user: User


@dataclass(frozen=True, slots=True)
class SystemPackages(Step):
    """Add system packages; the base must have the target's Python."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Copy(Step):
    """Add a file or folder of the context at a destination; a trailing slash counts."""

    source: str
    destination: Word


@dataclass(frozen=True, slots=True)
class Pairs(Step):
    """Set names to values: ENV and LABEL."""

    values: tuple[tuple[str, Word], ...]


@dataclass(frozen=True, slots=True)
class Words(Step):
    """Set words of the configuration: WORKDIR, USER, EXPOSE, VOLUME and STOPSIGNAL."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Command(Step):
    """Set CMD or ENTRYPOINT; a string is for the shell."""

    words: tuple[str, ...] | str


class Recipe(Struct, frozen=True):
    """The steps from the base image of a target to its image."""

    steps: tuple[Step, ...]
    #: Reasons why this engine cannot follow them.
    problems: tuple[Problem, ...]


def recipe(spec: Spec, target: Target, lock: Lock) -> Recipe:
    """Return the recipe of `target`, with its problems, their places and hints.

    Cheap: nothing is fetched, and the base is not read. Problems of the base, such as a missing
    Python, are raised by `assemble`, before any wheel is fetched. Raises `SpecError` if the
    template cannot be rendered.
    """
    return _RecipeReader(spec, target, lock).recipe()


_MACROS: Final = '{% import "_macros.j2" as pieces %}'
_PACKAGES_CALL: Final = '{{ pieces.packages(target.python, ["' + _PACKAGES + '"], manager) }}'
_CALLS: Final = {
    "install": "{% if lock.conda %}{{ pieces.conda(target, lock) }}{% else %}"
    "{{ pieces.install(target) }}{% endif %}",
    "account": "{{ pieces.account(target.user) }}",
    "check": 'RUN /opt/venv/bin/python -c ""',
}


class _RecipeReader:
    """Parser of one Dockerfile; unsupported instructions are in `problems`."""

    def __init__(self, spec: Spec, target: Target, lock: Lock) -> None:
        environment = make_environment(spec.root)
        self._spec = spec
        self._lock = lock
        self._text = dockerfile(environment, spec, target, lock)
        self._target = target = add_build_parts(target, build_of(spec, target))
        #: Macro → flags and text of its instructions.
        self._macros = {
            name: {
                (step.flags, step.text)
                for step in instructions(
                    render_piece(environment, _MACROS + call, {"target": target, "lock": lock})
                )
            }
            for name, call in _CALLS.items()
        }
        self._steps: list[Step] = []
        self._problems: list[Problem] = []
        #: Forms of the step that adds packages: a base may have another manager than the other.
        self._packages = []
        for image in (target.base.build, target.base.final):
            values = {"target": target, "manager": package_manager(target, image)}
            (step,) = instructions(render_piece(environment, _MACROS + _PACKAGES_CALL, values))
            before, after = map(re.escape, step.text.split(_PACKAGES))
            self._packages.append(re.compile(f"{before}([A-Za-z0-9+._^~:= -]*){after}"))

    def recipe(self) -> Recipe:
        try:
            above, read = stages(instructions(self._text))
        except DockerfileError as error:
            self._add_problem(None, f"its Dockerfile cannot be built without a builder: {error}")
        else:
            for instruction in above:
                if (instruction.keyword, instruction.text) != ("ARG", 'MIRROR=""'):
                    self._refuse(instruction)
            for stage in read[:-1]:
                self._read_helper_stage(stage)
            self._read_final_stage(read[-1])
            if not any(isinstance(step, Environment) for step in self._steps):
                self._add_problem(
                    read[-1].begin,
                    "its Dockerfile copies no `/opt/venv` from the stage `build`, which is what "
                    "this engine makes",
                )
        self._check_packages()
        return Recipe(tuple(self._steps), tuple(self._problems))

    def _read_helper_stage(self, stage: Stage) -> None:
        """Parse a stage before the last one: for a tool, or for the environment."""
        if stage.name in ("uv", "micromamba"):
            for instruction in stage.instructions:
                self._refuse(instruction)
            return
        if stage.name != "build":
            self._refuse(stage.begin)
            return
        needed = set(self._macros["install"])
        for instruction in stage.instructions:
            if instruction.keyword == "ENV":
                self._check_variables(instruction)
            elif instruction.keyword == "RUN" and self._is_macro(instruction, "install"):
                needed.discard((instruction.flags, instruction.text))
            elif instruction.keyword == "RUN" and not instruction.flags:
                names = self._package_names(instruction)
                # A compiler is only for packages without a wheel, which are refused by name.
                is_compiled = any(package.source_only for package in self._lock.packages)
                if names is None or (names and not is_compiled):
                    self._refuse(instruction)
            elif instruction.keyword not in ("USER", "LABEL", "WORKDIR"):
                self._refuse(instruction)
        if needed:
            self._add_problem(stage.begin, "its stage `build` does not install the lock as ours do")

    def _check_variables(self, instruction: DockerfileInstruction) -> None:
        """Refuse variables that affect the installer; other ones have no effect here."""
        try:
            names = [name for name, _ in pairs(instruction.text)]
        except DockerfileError as error:
            self._refuse(instruction, f"it has {error}")
            return
        for name in names:
            if _OF_BUILD.fullmatch(name):
                self._refuse(instruction, f"{name} would change what is installed")

    def _read_final_stage(self, stage: Stage) -> None:
        if stage.base != f"${{MIRROR}}{self._target.base.final}" or stage.begin.flags:
            self._refuse(stage.begin, "the last stage begins with another image than `base` names")
        readers: dict[str, Callable[[DockerfileInstruction], Step | None]] = {
            "RUN": self._read_run,
            "COPY": self._read_copy,
            **dict.fromkeys(("ENV", "LABEL"), lambda at: Pairs(at, pairs(at.text))),
            **dict.fromkeys(("WORKDIR", "USER"), lambda at: Words(at, (word(at.text),))),
            **dict.fromkeys(
                ("EXPOSE", "VOLUME", "STOPSIGNAL"),
                lambda at: Words(at, tuple(map(word, _parse_words(at.text)))),
            ),
            **dict.fromkeys(("CMD", "ENTRYPOINT"), _parse_command),
        }
        for instruction in stage.instructions:
            read = readers.get(instruction.keyword)
            if read is None:
                self._refuse(instruction)
                continue
            try:
                if instruction.flags and instruction.keyword not in ("RUN", "COPY"):
                    raise DockerfileError("flags")
                step = read(instruction)
            except DockerfileError as error:
                self._refuse(instruction, f"it has {error}")
            else:
                if step is not None:
                    self._steps.append(step)

    def _read_run(self, instruction: DockerfileInstruction) -> Step | None:
        if self._is_macro(instruction, "account"):
            return Account(instruction, self._target.user)
        if self._is_macro(instruction, "check"):
            return None  # what it checks is made here
        names = self._package_names(instruction)
        if names is None:
            self._refuse(instruction)
            return None
        return SystemPackages(instruction, names)

    def _package_names(self, instruction: DockerfileInstruction) -> tuple[str, ...] | None:
        """Return the packages that a RUN of our macro names; None for any other RUN."""
        matches = (pattern.fullmatch(instruction.text) for pattern in self._packages)
        match = None if instruction.flags else next(filter(None, matches), None)
        return None if match is None else tuple(match[1].split())

    def _read_copy(self, instruction: DockerfileInstruction) -> Step | None:
        paths = _parse_words(instruction.text)
        if instruction.flags == ("--from=build",) and paths == ["/opt/venv", "/opt/venv"]:
            return Environment(instruction)
        if instruction.flags:
            raise DockerfileError(f"the flag {instruction.flags[0]}")
        if len(paths) != 2:
            raise DockerfileError("more than one source")
        source = word(paths[0])
        if any(is_name for _, is_name in source.parts):
            raise DockerfileError("a variable in its source")
        # The only wildcard of our filter: an escaped bracket.
        path = source.value({}).replace("[[]", "\0")
        if re.search(r"[*?\[\\]", path):
            raise DockerfileError("a wildcard")
        return Copy(instruction, path.replace("\0", "["), word(paths[1]))

    def _is_macro(self, instruction: DockerfileInstruction, macro: str) -> bool:
        return (instruction.flags, instruction.text) in self._macros[macro]

    # Unsupported instructions

    def _refuse(self, instruction: DockerfileInstruction, why: str = "") -> None:
        reason = f": {why}" if why else ""
        self._add_problem(
            instruction, f"`{instruction.shown}` cannot be done without a builder{reason}"
        )

    def _add_problem(self, instruction: DockerfileInstruction | None, message: str) -> None:
        """Add a problem with its place: in the template, if the first line is unique there."""
        template = template_of(self._spec.root, self._target)
        is_ours = (builtin_templates() / template).is_file()
        line = None
        if not is_ours and instruction is not None:
            line = _find_only_line(self._spec.root / template, instruction.first)
        file = template
        if line is None:
            file = self._spec.dockerfile(self._target.id)
            line = instruction.line if instruction is not None else None
        hint = "take the step out of the template, or build with `--engine docker`"
        self._problems.append(Problem(f"{self._target.id}: {message}", file, line, hint=hint))

    def _check_packages(self) -> None:
        """Add problems of packages that cannot be installed here."""
        target = self._target.id
        is_apt = package_manager(self._target, self._target.base.final) == "apt"
        for step in self._steps:
            if not isinstance(step, SystemPackages) or not step.names:
                continue
            names = ", ".join(step.names)
            if not is_apt:
                message = f"the engine `oci` cannot install RPM packages ({names})"
                hint = f"take a base that has them, or {WITH_DOCKER}"
            elif missing := missing_programs():
                message = f"Debian packages ({names}) are resolved by apt, and this machine has no "
                message += missing[0]
                hint = f"take a base that has them, install apt and dpkg, or {WITH_DOCKER}"
            else:
                continue
            place = self._spec.dockerfile(target), step.at.line
            self._problems.append(Problem(f"{target}: {message}", *place, hint=hint))
        for package in self._lock.packages:
            why = refusal(package, self._target)
            if why is not None:
                file, _, line = package.place.rpartition(":")
                self._problems.append(
                    Problem(
                        f"{target}: {package.name} {package.version} cannot be installed without "
                        f"building it: {why}",
                        file or self._target.lock,
                        int(line) if line.isdecimal() else None,
                        hint=f"put a wheel of it on an index, or {WITH_DOCKER}",
                    )
                )


def _parse_words(text: str) -> list[str]:
    """Return the words of a JSON array or of plain text."""
    listed = array(text)
    return words(text) if listed is None else listed


def _parse_command(at: DockerfileInstruction) -> Command:
    listed = array(at.text)
    return Command(at, at.text if listed is None else tuple(listed))


def _find_only_line(path: Path, text: str) -> int | None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    numbers = [number for number, line in enumerate(lines, 1) if line.strip() == text.strip()]
    return numbers[0] if len(numbers) == 1 else None
