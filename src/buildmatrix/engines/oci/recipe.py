"""Translation of a target's Dockerfile into steps that need no shell.

The Dockerfile is the only description of an image, and is parsed instruction by instruction. The
only supported RUN commands are those of our own macros, which are implemented here. A user's
template may change everything else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from buildmatrix.base.errors import Problem
from buildmatrix.engines.oci.apt import missing_programs
from buildmatrix.engines.oci.dockerfile import (
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
from buildmatrix.engines.render.dockerfile import (
    add_build_parts,
    build_of,
    builtin_templates,
    dockerfile,
    make_environment,
    render_piece,
    template_of,
)
from buildmatrix.images.oci.documents import Execution
from buildmatrix.images.oci.layers import FIXED_TIME
from buildmatrix.locks.model import Lock
from buildmatrix.locks.selection import refusal
from buildmatrix.matrix.model import Spec, Target, User

#: Placeholder of the list of packages in macros.
_PACKAGES: Final = "zzpackageszz"
#: Variables that affect uv, or its choice of Python.
_OF_BUILD = re.compile(r"UV_.*|PIP_.*|PYTHON.*|PATH|HOME|VIRTUAL_ENV|LD_.*|SSL_.*|.*_proxy", re.I)


@dataclass(frozen=True, slots=True)
class SystemPackages:
    """Debian packages of the final image, and its Python if the base has none."""

    names: tuple[str, ...]
    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class Account:
    """The target's user."""

    user: User
    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class Environment:
    """The virtual environment."""

    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class Copy:
    """A file or folder of the context, and its destination; a trailing slash counts."""

    source: str
    destination: Word
    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """Working folder of commands, created if missing."""

    path: Word
    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class Variables:
    """Environment variables."""

    values: tuple[tuple[str, Word], ...]
    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels."""

    values: tuple[tuple[str, Word], ...]
    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class RunAs:
    """The user of commands."""

    user: Word
    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class Command:
    """CMD or ENTRYPOINT; a string is for the shell."""

    is_entrypoint: bool
    words: tuple[str, ...] | str
    at: DockerfileInstruction


@dataclass(frozen=True, slots=True)
class Declaration:
    """EXPOSE, VOLUME or STOPSIGNAL, which only change the configuration."""

    words: tuple[Word, ...]
    at: DockerfileInstruction


Step = (
    SystemPackages | Account | Environment | Copy | WorkFolder | Variables | Labels | RunAs
    | Command | Declaration
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """The steps from the base image of a target to its image."""

    steps: tuple[Step, ...]
    #: Unsupported instructions.
    problems: tuple[Problem, ...]


def recipe(spec: Spec, target: Target, lock: Lock) -> Recipe:
    """Return the recipe of `target`. Raises `SpecError` if its template cannot be rendered."""
    environment = make_environment(spec.root)
    text = dockerfile(environment, spec, target, lock)
    target = add_build_parts(target, build_of(spec, target))
    macros = {
        name: tuple(instructions(render_piece(environment, _MACROS + call, {"target": target})))
        for name, call in _CALLS.items()
    }
    is_compiled = any(package.source_only for package in lock.packages)
    return _RecipeReader(spec, target, text, macros, is_compiled).recipe()


_MACROS: Final = '{% import "_macros.j2" as pieces %}'
_CALLS: Final = {
    "packages": '{{ pieces.packages(target.python, ["' + _PACKAGES + '"]) }}',
    "install": "{{ pieces.install(target) }}",
    "account": "{{ pieces.account(target.user) }}",
    "check": 'RUN /opt/venv/bin/python -c ""',
}


class _RecipeReader:
    """Parser of one Dockerfile; unsupported instructions are in `problems`."""

    def __init__(
        self,
        spec: Spec,
        target: Target,
        text: str,
        macros: dict[str, tuple[DockerfileInstruction, ...]],
        is_compiled: bool,
    ) -> None:
        self._spec = spec
        self._target = target
        self._text = text
        self._macros = macros
        self._is_compiled = is_compiled
        self._steps: list[Step] = []
        self._problems: list[Problem] = []
        before, after = map(re.escape, macros["packages"][0].text.split(_PACKAGES))
        self._packages = re.compile(f"{before}([a-z0-9][a-z0-9+.:=~A-Z -]*|){after}")

    def recipe(self) -> Recipe:
        try:
            above, read = stages(self._text)
        except DockerfileError as error:
            self._problem(None, f"its Dockerfile cannot be built without a builder: {error}")
            return Recipe((), tuple(self._problems))
        for instruction in above:
            if (instruction.keyword, instruction.text) != ("ARG", 'MIRROR=""'):
                self._refuse(instruction)
        for stage in read[:-1]:
            self._helper(stage)
        self._final(read[-1])
        if not any(isinstance(step, Environment) for step in self._steps):
            self._problem(
                read[-1].begin,
                "its Dockerfile copies no `/opt/venv` from the stage `build`, which is what this "
                "engine makes",
            )
        return Recipe(tuple(self._steps), tuple(self._problems))

    def _helper(self, stage: Stage) -> None:
        """Parse a stage before the last one: for uv, or for the environment."""
        if stage.name == "uv":
            for instruction in stage.instructions:
                self._refuse(instruction)
            return
        if stage.name != "build":
            self._refuse(stage.begin)
            return
        needed = {(step.flags, step.text) for step in self._macros["install"]}
        for instruction in stage.instructions:
            if instruction.keyword == "ENV":
                self._check_variables(instruction)
            elif instruction.keyword == "RUN" and self._is(instruction, "install"):
                needed.discard((instruction.flags, instruction.text))
            elif instruction.keyword == "RUN" and not instruction.flags:
                names = self._packages.fullmatch(instruction.text)
                # A compiler is only for packages without a wheel, which are refused by name.
                if names is None or (names[1] and not self._is_compiled):
                    self._refuse(instruction)
            elif instruction.keyword not in ("USER", "LABEL", "WORKDIR"):
                self._refuse(instruction)
        if needed:
            self._problem(stage.begin, "its stage `build` does not install the lock as ours do")

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

    def _final(self, stage: Stage) -> None:
        if stage.base != f"${{MIRROR}}{self._target.base.final}" or stage.begin.flags:
            self._refuse(stage.begin, "the last stage begins with another image than `base` names")
        readers: dict[str, Callable[[DockerfileInstruction], Step | None]] = {
            "RUN": self._run,
            "COPY": self._copy,
            "WORKDIR": lambda at: WorkFolder(word(at.text), at),
            "ENV": lambda at: Variables(pairs(at.text), at),
            "LABEL": lambda at: Labels(pairs(at.text), at),
            "USER": lambda at: RunAs(word(at.text), at),
            "CMD": self._command,
            "ENTRYPOINT": self._command,
            "EXPOSE": self._declaration,
            "VOLUME": self._declaration,
            "STOPSIGNAL": self._declaration,
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

    def _run(self, instruction: DockerfileInstruction) -> Step | None:
        if self._is(instruction, "account"):
            return Account(self._target.user, instruction)
        if self._is(instruction, "check"):
            return None  # what it checks is made here
        names = None if instruction.flags else self._packages.fullmatch(instruction.text)
        if names is None:
            self._refuse(instruction)
            return None
        return SystemPackages(tuple(names[1].split()), instruction)

    def _copy(self, instruction: DockerfileInstruction) -> Step | None:
        paths = array(instruction.text)
        paths = words(instruction.text) if paths is None else paths
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
        return Copy(path.replace("\0", "["), word(paths[1]), instruction)

    def _command(self, instruction: DockerfileInstruction) -> Step:
        listed = array(instruction.text)
        is_entrypoint = instruction.keyword == "ENTRYPOINT"
        return Command(
            is_entrypoint, instruction.text if listed is None else tuple(listed), instruction
        )

    def _declaration(self, instruction: DockerfileInstruction) -> Step:
        listed = array(instruction.text)
        texts = words(instruction.text) if listed is None else listed
        return Declaration(tuple(map(word, texts)), instruction)

    def _is(self, instruction: DockerfileInstruction, macro: str) -> bool:
        return any(
            (instruction.flags, instruction.text) == (expected.flags, expected.text)
            for expected in self._macros[macro]
        )

    # Unsupported instructions

    def _refuse(self, instruction: DockerfileInstruction, why: str = "") -> None:
        reason = f": {why}" if why else ""
        self._problem(
            instruction, f"`{instruction.shown}` cannot be done without a builder{reason}"
        )

    def _problem(self, instruction: DockerfileInstruction | None, message: str) -> None:
        file, line = self._place(instruction)
        self._problems.append(
            Problem(
                f"{self._target.id}: {message}",
                file,
                line,
                hint="take the step out of the template, or build with `--engine docker`",
            )
        )

    def _place(self, instruction: DockerfileInstruction | None) -> tuple[str, int | None]:
        """Return file and line: in the template if its first line is unique there."""
        template = template_of(self._spec.root, self._target)
        path = self._spec.root / template
        is_ours = (builtin_templates() / template).is_file()
        if not is_ours and instruction is not None:
            line = _only_line(path, instruction.first)
            if line is not None:
                return template, line
        generated = self._spec.dockerfile(self._target.id)
        return generated, instruction.line if instruction is not None else None


def _only_line(path: Path, text: str) -> int | None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    numbers = [number for number, line in enumerate(lines, 1) if line.strip() == text.strip()]
    return numbers[0] if len(numbers) == 1 else None


# Configuration of the image


def commanded(run: Execution, step: Command, *, is_command_ours: bool) -> Execution:
    """Apply a CMD or ENTRYPOINT; `is_command_ours` if the CMD is not the base's."""
    shell = run.shell or ("/bin/sh", "-c")
    command = (*shell, step.words) if isinstance(step.words, str) else step.words
    if not step.is_entrypoint:
        return msgspec.structs.replace(run, cmd=command)
    # Like BuildKit: the base's CMD belongs to the base's ENTRYPOINT.
    cmd = run.cmd if is_command_ours else ()
    return msgspec.structs.replace(run, entrypoint=command, cmd=cmd)


def declared(run: Execution, keyword: str, values: Sequence[str]) -> Execution:
    """Apply a STOPSIGNAL, VOLUME or EXPOSE."""
    if keyword == "STOPSIGNAL":
        return msgspec.structs.replace(run, stop_signal=" ".join(values))
    if keyword == "VOLUME":
        volumes = {**run.volumes, **{value: {} for value in values}}
        return msgspec.structs.replace(run, volumes=volumes)
    exposed = dict(run.exposed_ports)
    exposed.update((value if "/" in value else f"{value}/tcp", {}) for value in values)
    return msgspec.structs.replace(run, exposed_ports=exposed)


def created() -> str:
    """Return the creation time of images: a constant, for reproducible images.

    Source: https://reproducible-builds.org/specs/source-date-epoch/.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(epoch) if epoch.isdecimal() and len(epoch) < 12 else FIXED_TIME
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Unsupported targets, detected before any download


#: Hint that always applies.
WITH_DOCKER: Final = "build with `--engine docker`"


def refusals(spec: Spec, target: Target, lock: Lock) -> list[Problem]:
    """Return why this engine cannot build `target`, with places and hints; none if it can.

    Cheap: nothing is fetched, and the base is not read. Problems of the base, such as a missing
    Python, are raised by `assemble`, before any wheel is fetched. Raises `SpecError` if the
    template cannot be rendered.
    """
    return refusals_of(spec, target, lock, recipe(spec, target, lock))


def refusals_of(spec: Spec, target: Target, lock: Lock, steps: Recipe) -> list[Problem]:
    """Do the same for an existing recipe of the three."""
    problems = list(steps.problems)
    for step in steps.steps:
        if isinstance(step, SystemPackages) and step.names and (missing := missing_programs()):
            problems.append(
                Problem(
                    f"{target.id}: Debian packages ({', '.join(step.names)}) are resolved by apt, "
                    f"and this machine has no {missing[0]}",
                    spec.dockerfile(target.id),
                    step.at.line,
                    hint=f"take a base that has them, install apt and dpkg, or {WITH_DOCKER}",
                )
            )
    for package in lock.packages:
        why = refusal(package, target)
        if why is not None:
            file, _, line = package.place.rpartition(":")
            problems.append(
                Problem(
                    f"{target.id}: {package.name} {package.version} cannot be installed without "
                    f"building it: {why}",
                    file or target.lock,
                    int(line) if line.isdecimal() else None,
                    hint=f"put a wheel of it on an index, or {WITH_DOCKER}",
                )
            )
    return problems
