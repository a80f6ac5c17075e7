"""Sections of a first specification as text, and the advice behind them."""

from __future__ import annotations

import os
import os.path
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from importlib.resources import files
from pathlib import Path, PurePath

import msgspec
from msgspec import Struct, field
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, SpecError, UsageError
from buildmatrix.base.parsing import parse_specifiers
from buildmatrix.base.progress import Silent
from buildmatrix.base.text import printable
from buildmatrix.base.threads import prepare_type
from buildmatrix.base.toml import mapping, string, tables, tool_table
from buildmatrix.catalogue.lookup import BackendBuild
from buildmatrix.facts.trees.base import Closing
from buildmatrix.locks.lookup import Recent
from buildmatrix.locks.model import Package
from buildmatrix.locks.preview import packages_of, resolve
from buildmatrix.locks.projects import no_project_table, read_project
from buildmatrix.locks.requirement_files import add_file, check
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.taken import is_package
from buildmatrix.locks.target_requirements import add_target
from buildmatrix.locks.uv import find_uv, settings_of
from buildmatrix.matrix import kinds
from buildmatrix.matrix.document import toml_string
from buildmatrix.matrix.model import bare_target
from buildmatrix.net import registry_client
from buildmatrix.net.addresses import Patience, RequestError
from buildmatrix.net.registry_mirrors import Mirrors, Reference


class ProjectInputs(Struct):
    """Contents of the inputs."""

    #: Normalized name → `file:line` of its first mention, in order.
    distributions: dict[str, str] = field(default_factory=dict)
    #: Unreadable inputs, with place and reason: `requirements.txt:7: ...`.
    unread: list[str] = field(default_factory=list)
    name: str = ""
    version: str = ""
    #: None where no `pyproject.toml` says it.
    requires_python: str | None = None
    extras: list[str] = field(default_factory=list)
    #: Extras that some other part excludes (`conflicts` of `[tool.uv]`).
    conflicting: set[str] = field(default_factory=set)
    #: True if the project itself can be installed; and its scripts.
    is_package: bool = False
    scripts: list[str] = field(default_factory=list)


def read_inputs(paths: Sequence[Path], *, is_locked: bool = False) -> ProjectInputs:
    """Read requirements files and `pyproject.toml` files.

    Where the project `is_locked`, a `pyproject.toml` need not say what is required.

    Raises:
        SpecError: a file is missing or cannot be read.
    """
    inputs = ProjectInputs()
    for path in paths:
        if path.suffix == ".toml":
            _read_project(path, inputs, is_locked)
        else:
            _read_requirements(path, inputs)
    return inputs


def _read_requirements(path: Path, inputs: ProjectInputs) -> None:
    requirements = RequirementSet(tolerant=True)
    add_file(requirements, path, path.name)
    if path.name not in requirements.files:  # it could not be read
        raise SpecError(requirements.problems)
    for line in requirements.lines:
        inputs.distributions.setdefault(line.name, str(line))
    inputs.unread += (
        f"{item.place}: {item.source} is built from source" for item in requirements.unbuilt
    )
    inputs.unread += (f"{unread.path}: {unread.why}" for unread in requirements.unread)
    inputs.unread += map(str, requirements.problems)
    names = dict.fromkeys(option.partition(" ")[0] for option in requirements.options)
    inputs.unread += [f"{path.name}: the option {name} is left to the resolver" for name in names]


def _read_project(path: Path, inputs: ProjectInputs, is_locked: bool) -> None:
    project = read_project(path, path.name)
    poetry = tool_table(project.document, "poetry")
    # A pixi.toml has `[workspace]`.
    whole = project.document.get("workspace", poetry) if is_locked else None
    table = project.document.get("project", whole)
    if not isinstance(table, dict):
        raise no_project_table(project)
    inputs.name, inputs.version = string(table.get("name")), string(table.get("version"))
    requires_python = table.get("requires-python")
    inputs.requires_python = requires_python if isinstance(requires_python, str) else None
    inputs.extras += mapping(table.get("optional-dependencies"))
    uv = tool_table(project.document, "uv")
    conflicts = uv.get("conflicts")
    for several in conflicts if isinstance(conflicts, list) else ():
        inputs.conflicting |= {
            canonicalize_name(string(item.get("extra"))) for item in tables(several)
        }
    inputs.is_package = is_package(path)
    if inputs.is_package:
        inputs.scripts += mapping(table.get("scripts"))
    for requirement in project.requirements:
        if not requirement.part.startswith(":"):
            inputs.distributions.setdefault(requirement.name, project.place(requirement))
    inputs.unread += map(str, project.problems)


# Queries to an index and to registries; nothing depends on an answer


#: A first specification is written without digests rather than waited for.
_PATIENCE = Patience(tries=1, connect=3.0, silence=5.0, request=8.0)


def asker_of_torch(
    requirements: Sequence[str], pyproject: str | None, root: Path, python: str, base: str
) -> str | None:
    """Return the requirer of torch, `sentence-transformers, requirements.in:3`; empty if none.

    None if the requirements, files below `root`, cannot be resolved.
    """
    target = replace(
        bare_target("cpu", "cpu", base=base, python=python),
        requirements=tuple(requirements),
        pyproject=pyproject,
    )
    try:
        wanted = RequirementSet(settings=settings_of(root), tolerant=True)
        add_target(wanted, root, target)
        check(wanted)
        answer = resolve(find_uv(), target, wanted, Recent(), Silent(), offline=False)
        packages = {package.name: package for package in packages_of(answer, target, wanted)}
    except BuildmatrixError:
        return None
    return ", ".join(_way(packages, "torch")) if "torch" in packages else ""


def _way(packages: Mapping[str, Package], name: str) -> list[str]:
    """Return the distributions that require a package, up to a line of a file."""
    way: list[str] = []
    while name in packages and len(way) < len(packages):
        askers = packages[name].via
        lines = [asker for asker in askers if asker not in packages]
        new = [asker for asker in askers if asker not in way]
        if lines or not new:
            return [*way, *lines[:1]]
        name = new[0]
        way.append(name)
    return way


class Digests(Closing):
    """Asks registries for digests of base images; one that does not answer is asked once."""

    def __init__(self) -> None:
        self._registry = registry_client.Registry(patience=_PATIENCE, mirrors=Mirrors(os.environ))
        #: Registries that did not answer.
        self._silent: set[str] = set()

    def close(self) -> None:
        """Close all connections."""
        self._registry.close()

    def of(self, image: str) -> str:
        """The digest of an image; empty where its registry does not answer."""
        reference = Reference.parse(image)
        if reference.host in self._silent:
            return ""
        try:
            return self._registry.digest(reference)
        except RequestError as error:
            if error.status is None:
                self._silent.add(reference.host)
        except BuildmatrixError:
            pass  # The image is not there, or not for everybody.
        return ""


class DistributionAdvice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Distributions that need a different treatment per backend; see `init.toml`."""

    name: list[str]
    reason: str
    source: str
    date: date
    torch: bool = False
    replace: Mapping[str, str] = {}
    drop: list[str] = []


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `init.toml`."""

    pythons: list[str]
    backends: list[str]
    base: str
    #: Base image → the same without Python.
    plain: Mapping[str, str]
    impossible: Mapping[str, str]
    package: list[DistributionAdvice]


class Answers(Struct, frozen=True):
    """Answers of an index and of registries; none of registries if they were not asked."""

    #: What requires torch, directly or not; empty for nothing, None where nothing was resolved.
    torch: str | None = ""
    #: Image → its digest; empty where no registry answered.
    digest: Callable[[str], str] = lambda _: ""


#: Where nothing was asked.
NO_ANSWERS = Answers()


def read_advice() -> Advice:
    """Read the advice of `init` about distributions; the catalogue has the backends."""
    data = files("buildmatrix.commands").joinpath("init.toml").read_bytes()
    return msgspec.toml.decode(data, type=prepare_type(Advice))


def project_table(project: ProjectInputs, root: Path) -> str:
    """Return the table `[project]`."""
    name = re.sub(r"[^a-z0-9]+", "-", (project.name or root.resolve().name).lower()).strip("-")
    lines = ["[project]", f'name = "{name[:64].strip("-") or "project"}"']
    version = project.version or ""
    if kinds.VERSION.complaint(version) is None:
        lines.append(f"version = {toml_string(version)}")
    else:
        lines.append('version = "0.1.0"  # no version was found that can stand in a tag')
    lines.append('image = "registry.example.com/{project}"  # where `build --push` publishes')
    return text_of(lines)


def own_package(project: ProjectInputs, *, has_folders: bool = False) -> list[str]:
    """Return the line that installs the project itself, and folders of its lock, if any."""
    scripts = f", with {', '.join(project.scripts[:3])}" if project.scripts else ""
    built = [f"the project itself{scripts}"] * project.is_package
    built += ["the folders that its lock holds"] * has_folders
    return [f"install-project = true  # {'; '.join(built)}"] if built else []


def further_settings(project: ProjectInputs) -> list[str]:
    """Settings that a first specification leaves to its reader."""
    command = toml_list(project.scripts[:1] or ["python", "-m", "app"])
    copied = '# copy = [["src", "/app"]]  # what else goes into the image'
    return [
        *([] if project.is_package else [copied]),
        f"# command = {command}",
        '# variant = ["server"]  # the last part of identifiers; "default" where it is not said',
    ]


def fitting_pythons(
    requires: str | None, pythons: Sequence[str], builds: Iterable[BackendBuild]
) -> tuple[list[str], str]:
    """The Pythons that the project allows, the best first, and why that one."""
    limits = [build.base.pythons for build in builds if build.base and build.base.pythons]

    def rank(version: str) -> tuple[bool, int]:
        return (all(version in limit for limit in limits), pythons.index(version))

    usual = [pythons[1], *pythons[2:], pythons[0]]
    if requires is None:
        return usual, "nothing says which; an axis: every version gives a set of targets"
    try:
        fitting = [version for version in pythons if version in parse_specifiers(requires)]
    except InvalidSpecifier:
        fitting = []
    if not fitting:
        return usual, "requires-python allows none of those that are known here: check it"
    best = sorted(fitting, key=rank, reverse=True)
    why = "the newest that requires-python allows"
    if best[0] != fitting[-1]:
        why += " and all base images have"
    return best, f"{why}; all: {', '.join(fitting)}"


class ChosenBase(Struct, frozen=True):
    """The base image of a backend, and what follows from it."""

    image: str
    #: The Python of its images, where that is not the project's, and why.
    python: str = ""
    python_note: str = "that of the base image"
    #: Why it is not the vendor's.
    note: str = ""


def starting_base(
    build: BackendBuild, pythons: Sequence[str], runtimes: Sequence[str], advice: Advice
) -> ChosenBase:
    """The vendor's image where it has one of `pythons`, and is for all `runtimes`."""
    base = build.base
    if base is None:
        return ChosenBase(advice.base)
    if unknown := [name for name in runtimes if base.runtimes and name not in base.runtimes]:
        return ChosenBase(advice.base, note=f"no image for {', '.join(unknown)} is known here")
    if not base.pythons or pythons[0] in base.pythons:
        return ChosenBase(base.image)
    shared = [version for version in pythons if version in base.pythons]
    if shared or not base.optional:
        return ChosenBase(base.image, python=shared[0] if shared else base.pythons[-1])
    has = ", ".join(base.pythons)
    return ChosenBase(advice.base, note=f"{base.image} has Python {has}, which does not fit")


def base_lines(
    base: ChosenBase, build: BackendBuild, runtime: Mapping[str, str], python: str, answers: Answers
) -> Iterator[str]:
    """The lines of `python` and `base`: with the digest of the image, if it is one image."""
    if base.python:
        yield f"python = {toml_list([base.python])}  # {base.python_note}"
    if base.note:
        yield from (f"# {line}" for line in textwrap.wrap(f"Not the vendor's: {base.note}.", 96))
    values = {f"{{runtime.{key}}}": value for key, value in runtime.items()}
    image = base.image.replace("{python}", base.python or python)
    for key, value in values.items():
        image = image.replace(key, value)
    digest = "" if "{" in image else answers.digest(image)
    yield f"base = {toml_string(f'{image}@{digest}' if digest else base.image)}"
    if build.base and build.base.packages:
        yield f"system-packages = {toml_list(build.base.packages)}  # the user-mode driver"


def backend_head(
    name: str,
    build: BackendBuild,
    runtimes: Mapping[str, Mapping[str, str]],
    chosen: ChosenBase,
    python: str,
    answers: Answers,
) -> list[str]:
    """The first lines of `[backend.NAME]`; `runtimes` are its version lines, if it has any."""
    only = next(iter(runtimes.values())) if len(runtimes) == 1 else {}
    return [
        comment_of(*about_backend(build)).rstrip("\n"),
        f"[backend.{name}]",
        _runtime_line(runtimes) if runtimes else 'runtime = "any"  # no version lines',
        *base_lines(chosen, build, only, python, answers),
    ]


def _runtime_line(runtimes: Mapping[str, Mapping[str, str]]) -> str:
    texts = ", ".join(
        f"{toml_string(runtime)} = {{ {toml_pairs(values)} }}"
        if values
        else f"{toml_string(runtime)} = {{}}"
        for runtime, values in runtimes.items()
    )
    return f"runtime = {{ {texts} }}  # one set of targets for each"


def about_backend(build: BackendBuild) -> Iterator[str]:
    """Yield notes on a backend for the reader of a specification, with their sources."""
    yield f"{build.title}."
    if build.base is None:
        yield (
            "- Base image: no public one of the vendor is known here, so this is a plain one. Put "
            "the vendor's in its place."
        )
    else:
        note = f": {build.base.note}" if build.base.note else "."
        yield f"- Base image (source: {'; '.join(build.base_sources)}){note}"
    for origin in build.wheels:
        where = "that are not on PyPI" if origin.origin == "vendor" else "on PyPI"
        yield f"- Wheels {where}: {', '.join(origin.names)}. {origin.note or ''}".rstrip()
    for run in build.runs:
        note = f" ({run.note})" if run.note else ""
        yield f"- Run it with: docker run {' '.join(run.options)}{note}"


def last_tables(backends: Sequence[str]) -> str:
    """Return what comes after the backends: smoke commands and subsets."""
    return text_of(
        [
            "# A command that must succeed inside every image.",
            "# [[smoke]]",
            '# name = "import"',
            '# level = "import"',
            '# command = ["python", "-c", "import app"]',
            "",
            "# For pull requests: `buildmatrix build --subset pr`.",
            "[subset.pr]",
            f'select = ["{backends[0]}*"]',
            'latest = "runtime"',
        ]
    )


def relative_path(path: Path, root: Path) -> str:
    """Return `path` as a specification in `root` names it. Raises `UsageError` if it cannot."""
    relative = PurePath(os.path.relpath(path, root)).as_posix()
    if complaint := kinds.PATH.complaint(relative):
        raise UsageError(f"{path} cannot be named in {root / 'buildmatrix.toml'}: it {complaint}")
    return relative


def comment_of(*lines: str) -> str:
    """Return lines as comments, wrapped."""
    wrapped = (
        textwrap.wrap(
            printable(line),
            98,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_on_hyphens=False,
        )
        for line in lines
    )
    return "".join(f"# {line}\n" for lines in wrapped for line in lines)


def toml_list(words: Sequence[str]) -> str:
    """Return an array of strings."""
    return "[" + ", ".join(toml_string(word) for word in words) + "]"


def toml_pairs(values: Mapping[str, str]) -> str:
    """Return the keys and values of an inline table."""
    return ", ".join(f"{key} = {toml_string(value)}" for key, value in values.items())


def text_of(lines: Sequence[str]) -> str:
    """Join lines, each with its end."""
    return "\n".join(lines) + "\n"
