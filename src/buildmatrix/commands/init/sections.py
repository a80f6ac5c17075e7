"""Sections of a first specification as text, and the advice behind them."""

from __future__ import annotations

import os.path
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path, PurePath

import msgspec
from packaging.specifiers import InvalidSpecifier

from buildmatrix.base.errors import UsageError
from buildmatrix.base.parsing import parse_specifiers
from buildmatrix.base.text import printable
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.lookup import BackendBuild
from buildmatrix.commands.init.inputs import ProjectInputs
from buildmatrix.matrix import kinds
from buildmatrix.matrix.document import toml_string


class DistributionAdvice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Distributions that need a different treatment per backend; see `data/init.toml`."""

    name: list[str]
    reason: str
    source: str
    date: date
    torch: bool = False
    replace: Mapping[str, str] = {}
    drop: list[str] = []


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `data/init.toml`."""

    pythons: list[str]
    backends: list[str]
    base: str
    impossible: Mapping[str, str]
    package: list[DistributionAdvice]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of an index and of registries; none of registries if they were not asked."""

    #: What requires torch, directly or not; empty for nothing, None where nothing was resolved.
    torch: str | None = ""
    #: Image → its digest; empty where no registry answered.
    digest: Callable[[str], str] = lambda _: ""


#: Where nothing was asked.
NO_ANSWERS = Answers()


def read_advice() -> Advice:
    """Read the advice of `init` about distributions; the catalogue has the backends."""
    data = files("buildmatrix.commands.init").joinpath("data/init.toml").read_bytes()
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


def own_package(project: ProjectInputs) -> list[str]:
    """Return the line that installs the project itself, if it can be installed."""
    scripts = f", with {', '.join(project.scripts[:3])}" if project.scripts else ""
    return [f"install-project = true  # the project itself{scripts}"] * project.is_package


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


@dataclass(frozen=True, slots=True)
class ChosenBase:
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
    base: ChosenBase,
    build: BackendBuild,
    runtime: Mapping[str, str],
    python: str,
    answers: Answers,
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
