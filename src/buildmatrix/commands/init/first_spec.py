"""The first specification of a project, written from what it already has."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.catalogue.listing import backend_named
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.lookup import BackendBuild, backend_build
from buildmatrix.commands.init.asking import asker_of_torch
from buildmatrix.commands.init.inputs import ProjectInputs, read_inputs
from buildmatrix.commands.init.locked_spec import locked_spec
from buildmatrix.commands.init.sections import (
    NO_ANSWERS,
    Advice,
    Answers,
    ChosenBase,
    DistributionAdvice,
    about_backend,
    base_lines,
    comment_of,
    fitting_pythons,
    further_settings,
    last_tables,
    own_package,
    project_table,
    read_advice,
    relative_path,
    runtime_line,
    starting_base,
    text_of,
    toml_list,
    toml_pairs,
)
from buildmatrix.errors import UsageError
from buildmatrix.spec.document import toml_string


@dataclass(frozen=True, slots=True)
class Choice:
    """A distribution of the project that the knowledge speaks about."""

    name: str
    place: str
    package: DistributionAdvice


def first_spec(
    inputs: Sequence[Path],
    root: Path | None = None,
    named: Sequence[str] = (),
    *,
    locks: Sequence[Path] = (),
    answers: Answers = NO_ANSWERS,
) -> str:
    """The text of a `buildmatrix.toml` whose comments say why each choice was made.

    Args:
        inputs: requirements files, or a `pyproject.toml`.
        root: the folder that the specification will lie in; by default the current one.
        named: the backends that it is for, by their names or aliases; none for those that the
            inputs are a reason for.
        locks: those that the project has. What is installed is what they hold.
        answers: what was asked of an index and of registries.

    Raises:
        UsageError: an input is missing, cannot be read, or lies outside of `root`; a backend is
            unknown, no image can be made for it, or no lock holds anything for it.
    """
    root = root or Path()
    advice = read_advice()
    catalogue = load()
    wanted = [_backend_named(name, catalogue, advice) for name in dict.fromkeys(named)]
    project = read_inputs(inputs, is_locked=bool(locks))
    if locks:
        return locked_spec(
            inputs, [relative_path(path, root) for path in locks], root, wanted, project, answers
        )
    choices = _choices(project, advice, answers)
    usual = wanted or advice.backends
    own = {path: name for path in inputs if (name := _backend_in_name(path, usual))}
    backends = list(dict.fromkeys(wanted)) or (usual if choices or own else ["cpu"])
    builds = {name: backend_build(catalogue, name) for name in backends}
    pythons, why = fitting_pythons(project.requires_python, advice.pythons, builds.values())
    shared = [path for path in inputs if path not in own]
    head = _head(inputs, project, choices, is_said=bool(wanted), answers=answers)
    parts = [
        head,
        project_table(project, root),
        _defaults(shared, project, root, f"{toml_list(pythons[:1])}  # {why}"),
        *(
            _backend(
                name,
                build,
                advice,
                choices,
                [relative_path(path, root) for path in own if own[path] == name],
                starting_base(build, pythons, (), advice),
                answers,
                pythons[0],
            )
            for name, build in builds.items()
        ),
        last_tables(backends),
    ]
    return "\n".join(parts)


def resolved_torch(inputs: Sequence[Path], root: Path) -> str | None:
    """What of the inputs requires torch, by a resolution; see `Answers.torch`."""
    advice = read_advice()
    project = read_inputs(inputs)
    if "torch" in project.distributions:
        return ""
    pythons, _ = fitting_pythons(project.requires_python, advice.pythons, ())
    projects = [relative_path(path, root) for path in inputs if path.suffix == ".toml"]
    requirements = [relative_path(path, root) for path in inputs if path.suffix != ".toml"]
    base = advice.base.replace("{python}", pythons[0])
    return asker_of_torch(requirements, next(iter(projects), None), root, pythons[0], base)


def _choices(project: ProjectInputs, advice: Advice, answers: Answers) -> list[Choice]:
    """What the knowledge says of the requirements, and of torch where one of these requires it."""
    distributions = dict(project.distributions)
    if answers.torch and "torch" not in distributions:
        distributions["torch"] = answers.torch
    return [
        Choice(name, place, package)
        for name, place in distributions.items()
        for package in advice.package
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in package.name)
    ]


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
    inputs: Sequence[Path],
    project: ProjectInputs,
    choices: Sequence[Choice],
    *,
    is_said: bool,
    answers: Answers,
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
    if answers.torch is None:
        lines.append(
            "What these requirements require in turn is not known, as they were not resolved. If "
            "torch is among it, give each backend its `torch`."
        )
    if project.unread:
        lines.append("Not understood, and so not looked at here:")
        lines += [f"- {place}" for place in project.unread[:20]]
        if len(project.unread) > 20:
            lines.append(f"- and {len(project.unread) - 20} more")
    return comment_of(*lines) + "schema = 1\n"


def _defaults(inputs: Sequence[Path], project: ProjectInputs, root: Path, python: str) -> str:
    lines = ["[defaults]", f"python = {python}"]
    requirements = [relative_path(path, root) for path in inputs if path.suffix != ".toml"]
    if requirements:
        lines.append(f"requirements = {toml_list(requirements)}")
    if projects := [relative_path(path, root) for path in inputs if path.suffix == ".toml"]:
        if len(projects) > 1:
            raise UsageError(f"name one pyproject.toml, not {len(projects)}")
        lines.append(f"pyproject = {toml_string(projects[0])}")
        lines += own_package(project)
        offered = [e for e in project.extras if canonicalize_name(e) not in project.conflicting]
        if offered:
            lines.append(f"# extras = {toml_list(offered)}  # what {projects[0]} offers")
    return text_of([*lines, *further_settings(project)])


def _backend(
    name: str,
    build: BackendBuild,
    advice: Advice,
    choices: Sequence[Choice],
    requirements: Sequence[str],
    chosen: ChosenBase,
    answers: Answers,
    python: str,
) -> str:
    base = build.base
    lines = [comment_of(*about_backend(build)).rstrip("\n"), f"[backend.{name}]"]
    runtimes = base.runtimes if base else {}
    if runtimes:
        lines.append(runtime_line(runtimes))
    else:
        lines.append('runtime = "any"  # no version lines')
    only = next(iter(runtimes.values())) if len(runtimes) == 1 else {}
    lines += base_lines(chosen, build, only, python, answers)
    if requirements:
        lines.append(f"requirements = {toml_list(requirements)}  # beside those of [defaults]")
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
        lines.append(f"replace = {{ {toml_pairs(replaced)} }}")
    if dropped := [choice.name for choice in choices if column in choice.package.drop]:
        lines.append(f"drop = {toml_list(dropped)}")
    return text_of(lines)
