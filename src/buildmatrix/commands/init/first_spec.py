"""The first specification of a project, written from what it already has."""

from __future__ import annotations

import fnmatch
import os.path
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path, PurePath

import msgspec
from packaging.specifiers import InvalidSpecifier

from buildmatrix.catalogue.building import BackendBuild, backend_build
from buildmatrix.catalogue.listing import backend_named
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.commands.init.inputs import ProjectInputs, read_inputs
from buildmatrix.errors import UsageError
from buildmatrix.parsing import parse_specifiers
from buildmatrix.spec import kinds
from buildmatrix.spec.hints import toml_string
from buildmatrix.text import printable
from buildmatrix.threads import prepare_type


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
class Choice:
    """A distribution of the project that the knowledge speaks about."""

    name: str
    place: str
    package: DistributionAdvice


def read_advice() -> Advice:
    """What `init` knows about distributions; the catalogue knows the backends."""
    data = files("buildmatrix.commands.init").joinpath("data/init.toml").read_bytes()
    return msgspec.toml.decode(data, type=prepare_type(Advice))


def first_spec(inputs: Sequence[Path], root: Path | None = None, named: Sequence[str] = ()) -> str:
    """The text of a `buildmatrix.toml` whose comments say why each choice was made.

    Args:
        inputs: requirements files, or a `pyproject.toml`.
        root: the folder that the specification will lie in; by default the current one.
        named: the backends that it is for, by their names or aliases; none for those that the
            inputs are a reason for.

    Raises:
        UsageError: an input is missing, cannot be read, or lies outside of `root`; a backend is
            unknown, or no image can be made for it.
    """
    root = root or Path()
    advice = read_advice()
    catalogue = load()
    backends = [_backend_named(name, catalogue, advice) for name in dict.fromkeys(named)]
    project = read_inputs(inputs)
    choices = [
        Choice(name, place, package)
        for name, place in project.distributions.items()
        for package in advice.package
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in package.name)
    ]
    usual = backends or advice.backends
    own = {path: name for path in inputs if (name := _backend_in_name(path, usual))}
    is_said = bool(backends)
    backends = list(dict.fromkeys(backends)) or (usual if choices or own else ["cpu"])
    pythons, why = _pythons(project.requires_python, advice.pythons)
    shared = [path for path in inputs if path not in own]
    parts = [
        _head(inputs, project, choices, is_said=is_said),
        _project(project, root),
        _defaults(shared, project, root, pythons, why),
        *(
            _backend(
                name,
                backend_build(catalogue, name),
                advice,
                choices,
                [_relative(path, root) for path in own if own[path] == name],
                pythons,
            )
            for name in backends
        ),
        _tail(backends),
    ]
    return "\n".join(parts)


def _backend_named(name: str, catalogue: Catalogue, advice: Advice) -> str:
    if name in advice.impossible:
        raise UsageError(f"there is no image for {name}: {advice.impossible[name]}")
    backend = backend_named(name, catalogue)
    if reason := backend_build(catalogue, backend).unbuildable:
        raise UsageError(f"there is no image for {name}: {reason}")
    return backend


def _backend_in_name(path: Path, backends: Iterable[str]) -> str | None:
    """The one backend that a requirements file is named after: `requirements-cuda.txt`."""
    if path.suffix == ".toml":
        return None
    words = re.split(r"[^a-z0-9]+", path.stem.lower())
    named = [name for name in backends if any(re.fullmatch(rf"{name}\d*", word) for word in words)]
    return named[0] if len(named) == 1 else None


def _head(
    inputs: Sequence[Path], project: ProjectInputs, choices: Sequence[Choice], *, is_said: bool
) -> str:
    names = ", ".join(path.name for path in inputs)
    lines = [f"Written by `buildmatrix init` from {names}. It is a start: read it, change it."]
    if choices:
        lines.append("These requirements are not the same on every backend:")
        lines += [
            f"- {choice.name} ({choice.place}): {choice.package.reason}" for choice in choices
        ]
    elif not is_said:
        lines.append(
            "None of the requirements is known to differ between backends, so there is one "
            "backend, cpu. For an accelerator name it: `buildmatrix init --backend cuda`."
        )
    if project.unread:
        lines.append("Not understood, and so not looked at here:")
        lines += [f"- {place}" for place in project.unread[:20]]
        if len(project.unread) > 20:
            lines.append(f"- and {len(project.unread) - 20} more")
    return _comment(*lines) + "schema = 1\n"


def _project(project: ProjectInputs, root: Path) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", (project.name or root.resolve().name).lower()).strip("-")
    lines = ["[project]", f'name = "{name[:64].strip("-") or "project"}"']
    version = project.version or ""
    if kinds.VERSION.complaint(version) is None:
        lines.append(f"version = {toml_string(version)}")
    else:
        lines.append('version = "0.1.0"  # no version was found that can stand in a tag')
    lines.append('image = "registry.example.com/{project}"  # where `build --push` publishes')
    return _lines(lines)


def _defaults(
    inputs: Sequence[Path], project: ProjectInputs, root: Path, pythons: Sequence[str], why: str
) -> str:
    lines = ["[defaults]", f"python = {_list(pythons)}  # {why}"]
    requirements = [_relative(path, root) for path in inputs if path.suffix != ".toml"]
    if requirements:
        lines.append(f"requirements = {_list(requirements)}")
    if projects := [_relative(path, root) for path in inputs if path.suffix == ".toml"]:
        if len(projects) > 1:
            raise UsageError(f"name one pyproject.toml, not {len(projects)}")
        lines.append(f"pyproject = {toml_string(projects[0])}")
        if project.extras:
            lines.append(f"# extras = {_list(project.extras)}  # what {projects[0]} offers")
    lines += [
        '# copy = [["src", "/app"]]  # what else goes into the image',
        '# command = ["python", "-m", "app"]',
        '# variant = ["server"]  # the last part of identifiers; "default" where it is not said',
    ]
    return _lines(lines)


def _pythons(requires: str | None, pythons: Sequence[str]) -> tuple[list[str], str]:
    if requires is None:
        return [pythons[1]], "nothing says which; an axis: every version gives a set of targets"
    try:
        fitting = [version for version in pythons if version in parse_specifiers(requires)]
    except InvalidSpecifier:
        fitting = []
    if fitting:
        return fitting[-1:], f"the newest that requires-python allows; all: {', '.join(fitting)}"
    return [pythons[1]], "requires-python allows none of those that are known here: check it"


def _backend(
    name: str,
    build: BackendBuild,
    advice: Advice,
    choices: Sequence[Choice],
    requirements: Sequence[str],
    pythons: Sequence[str],
) -> str:
    base = build.base
    lines = [_comment(*_about(build)).rstrip("\n"), f"[backend.{name}]"]
    if base and base.runtimes:
        runtimes = ", ".join(
            f"{toml_string(runtime)} = {{ {_pairs(values)} }}"
            for runtime, values in base.runtimes.items()
        )
        lines.append(f"runtime = {{ {runtimes} }}  # one set of targets for each")
    else:
        lines.append('runtime = "any"  # no version lines')
    if base and base.pythons and not set(pythons) <= set(base.pythons):
        lines.append(f"python = {_list(base.pythons[-1:])}  # that of the base image")
    lines.append(f"base = {toml_string(base.image if base else advice.base)}")
    if requirements:
        lines.append(f"requirements = {_list(requirements)}  # beside those of [defaults]")
    if base and base.packages:
        lines.append(f"system-packages = {_list(base.packages)}  # the user-mode driver")
    if torch := [choice.name for choice in choices if choice.package.torch]:
        lines += [
            f"# Because of {', '.join(torch)}: torch comes from the index of this build only.",
            f"torch = {toml_string(base.torch if base else 'cpu')}",
        ]
    # What has a table of its own in the advice, and the build for the CPU for all others.
    column = name if name in advice.backends else "cpu"
    replaced = {
        choice.name: twin
        for choice in choices
        if (twin := choice.package.replace.get(name) or choice.package.replace.get(column))
    }
    if replaced:
        lines.append(f"replace = {{ {_pairs(replaced)} }}")
    if dropped := [choice.name for choice in choices if column in choice.package.drop]:
        lines.append(f"drop = {_list(dropped)}")
    return _lines(lines)


def _about(build: BackendBuild) -> Iterator[str]:
    """What a reader has to know of a backend, where each thing comes from among it."""
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
        names = ", ".join(origin.names)
        if origin.origin == "vendor":
            yield f"- Wheels that are not on PyPI: {names}. {origin.note or ''}".rstrip()
        else:
            yield f"- Wheels on PyPI: {names}. {origin.note or ''}".rstrip()
    for run in build.runs:
        note = f" ({run.note})" if run.note else ""
        yield f"- Run it with: docker run {' '.join(run.options)}{note}"


def _tail(backends: Sequence[str]) -> str:
    return _lines(
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


def _relative(path: Path, root: Path) -> str:
    relative = PurePath(os.path.relpath(path, root)).as_posix()
    if complaint := kinds.PATH.complaint(relative):
        raise UsageError(f"{path} cannot be named in {root / 'buildmatrix.toml'}: it {complaint}")
    return relative


def _comment(*lines: str) -> str:
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


def _list(words: Sequence[str]) -> str:
    return "[" + ", ".join(toml_string(word) for word in words) + "]"


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {toml_string(value)}" for key, value in values.items())


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
