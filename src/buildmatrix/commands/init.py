"""Write the first specification of a project, from its requirements or its lock."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import listing
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.lookup import BackendBuild, backend_build, find_backend, first_base
from buildmatrix.commands.init_locked import LockedPart, LockedProject, read_locked
from buildmatrix.commands.init_sections import (
    NO_ANSWERS,
    Advice,
    Answers,
    DistributionAdvice,
    ProjectInputs,
    asker_of_torch,
    backend_head,
    comment_of,
    fitting_pythons,
    further_settings,
    last_tables,
    own_package,
    project_table,
    read_advice,
    read_inputs,
    relative_path,
    starting_base,
    text_of,
    toml_list,
    toml_pairs,
)
from buildmatrix.matrix.document import toml_string
from buildmatrix.matrix.model import is_conda_lock


def locked_spec(
    inputs: Sequence[Path],
    locks: Sequence[str],
    root: Path,
    wanted: Sequence[str],
    project: ProjectInputs,
    answers: Answers,
    distribution: str = "",
) -> str:
    """The specification of a project whose lock is installed as it is."""
    catalogue = load()
    advice = _advice_for(distribution, catalogue)
    is_conda = any(map(is_conda_lock, locks))
    if is_conda:
        advice = replace(advice, base=advice.plain.get(advice.base, advice.base))

    def build_of(name: str) -> BackendBuild:
        build = _build_on(distribution, catalogue, name)
        return _without_python(build, advice) if is_conda else build

    builds = {name: build_of(name) for name in wanted or advice.backends}
    pythons, _ = fitting_pythons(project.requires_python, advice.pythons, builds.values())
    bases = [build.base for build in builds.values() if build.base and not build.base.optional]
    pythons += sorted({p for base in bases for p in base.pythons} - set(pythons))
    own = [path for path in inputs if path.name == "pyproject.toml"]
    locked = read_locked(root, locks, pythons, catalogue, advice.base, install_project=bool(own))
    is_built = project.is_package or locked.has_folders
    sections = {
        name: _locked_backend(name, build_of(name), locked, answers, advice)
        for name in wanted or dict.fromkeys(part.backend for part in locked.parts)
    }
    backends = [name for name, section in sections.items() if section]
    lacking = [name for name in sections if name not in backends]
    if lacking or not backends:
        of = " or ".join(lacking) or "any backend"
        why = "".join(f"\n- {part.label}: {part.why}" for part in locked.open)
        raise UsageError(
            f"{', '.join(locks)}: no part can be installed for {of}"
            + (
                f":{why}\nTo resolve anew, name the requirements: `buildmatrix init FILE`"
                if why
                else ""
            )
        )
    shared = [p for p in pythons if all(p in locked.pythons[name] for name in backends)]
    others = f"; all: {', '.join(sorted(shared))}" if len(shared) > 1 else ""
    defaults = [
        "[defaults]",
        f"python = {toml_list([locked.python])}  # one that the lock is for{others}",
        *([f"lock = {toml_string(locked.lock)}"] if locked.lock else []),
    ]
    if own:
        defaults += [f"pyproject = {toml_string(relative_path(own[0], root))}"] * is_built
        defaults += own_package(project, has_folders=locked.has_folders)
    for key, names in (("extras", locked.extras), ("groups", locked.groups)):
        defaults += [f"# {key} = {toml_list(names)}  # what else the lock offers"] * bool(names)
    origin = ", ".join([*locked.locks, *(path.name for path in inputs)])
    head = [
        f"Written by `buildmatrix init` from {origin}. It is a start: read it, change it.",
        f"The files that are locked in {listing(locked.locks)} are installed; nothing is resolved.",
    ]
    if locked.open:
        head.append("These parts belong to no backend here:")
    for part in locked.open:
        use = f"; to use it: {part.line}" if part.line else ""
        head.append(f"- {part.label}: {part.why}{use}")
    return "\n".join(
        [
            comment_of(*head) + "schema = 1\n",
            project_table(project, root),
            text_of([*defaults, *further_settings(project)]),
            *(sections[name] for name in backends),
            last_tables(backends),
        ]
    )


def _locked_backend(
    name: str, build: BackendBuild, locked: LockedProject, answers: Answers, advice: Advice
) -> str:
    """The table of a backend; empty, with the reason in `locked.open`, where there is no image."""
    known = build.base.runtimes if build.base else {}
    runtimes: dict[str, dict[str, str]] = {}
    parts: dict[str, LockedPart] = {}
    for part in locked.parts:
        if part.backend != name:
            continue
        key, values = _known_runtime(part.runtime, known)
        first = next(iter(parts.values()), part)
        if key in parts:
            locked.leave_open(part, f"{parts[key].label} is for {name} {key} already")
        elif part.key != first.key:
            locked.leave_open(part, f"it is no part of the kind of {first.label}")
        else:
            runtimes[key] = {k: value for k, value in values.items() if k != "torch"}
            parts[key] = part
    if not parts:
        return ""
    pythons = locked.pythons[name]
    chosen = starting_base(build, pythons, [key for key in parts if key != "any"], advice)
    if chosen.python and chosen.python not in pythons:
        why = f"its base image {chosen.image} has Python {chosen.python}, which the lock is not for"
        for part in parts.values():
            locked.leave_open(part, why, is_usable=False)
        return ""
    if not chosen.python and pythons[0] != locked.python:
        chosen = replace(chosen, python=pythons[0], python_note="one that this part is for")
    several = len(parts) > 1
    first = next(iter(parts.values()))
    settings: list[str] = []
    if first.name and several:
        key = first.key.removesuffix("s")
        for runtime, part in parts.items():
            runtimes[runtime][key] = part.name
        settings.append(first.setting(f"{{runtime.{key}}}"))
    elif first.name:
        settings.append(first.line)
    if not locked.lock:
        if len({part.lock for part in parts.values()}) == 1:
            settings.insert(0, f"lock = {toml_string(first.lock)}")
        else:
            folder = "".join(first.lock.rpartition("/")[:2])
            for runtime, part in parts.items():
                runtimes[runtime]["lock"] = part.lock.rpartition("/")[2]
            settings.insert(0, f'lock = "{folder}{{runtime.lock}}"')
    lines = {} if list(parts) == ["any"] else runtimes
    head = backend_head(name, build, lines, chosen, locked.python, answers)
    return text_of([*head, *settings])


def _known_runtime(
    runtime: str, known: Mapping[str, Mapping[str, str]]
) -> tuple[str, Mapping[str, str]]:
    """The version line to write for one that a lock says, `12` or `12.9`, and its values."""
    for key, values in known.items():
        if not runtime or key == runtime or key.startswith(f"{runtime}."):
            return key, values
    return (runtime, {}) if runtime and known else ("any", {})


# Distributions


def _advice_for(distribution: str, catalogue: Catalogue) -> Advice:
    """The advice; for a distribution, with its plain image, and the Pythons of its repositories."""
    advice = read_advice()
    if not distribution:
        return advice
    plain, _ = first_base(catalogue, "cpu", distribution)
    if plain is None:
        bases = (base for file in catalogue.files.values() for base in file.bases)
        known = sorted({base.distribution for base in bases if base.distribution})
        raise UsageError(f"no base image of {distribution} is known; known: {', '.join(known)}")
    pythons = [version for version in advice.pythons if version in plain.pythons]
    return replace(advice, base=plain.image, pythons=pythons)


def _build_on(distribution: str, catalogue: Catalogue, backend: str) -> BackendBuild:
    """Return the settings of a backend, with a base image of `distribution` if one is named.

    A plain image takes the place of a vendor's where the wheels bring all that it has. Raises
    `UsageError` where they do not.
    """
    build = backend_build(catalogue, backend)
    if not distribution or build.base is None:
        return build
    base, sources = first_base(catalogue, backend, distribution)
    if base is None:
        usual, _ = first_base(catalogue, "cpu")
        is_plain = usual is not None and build.base.image == usual.image
        base, sources = first_base(catalogue, "cpu", distribution)
        if base is None or build.base.packages or not (is_plain or build.base.optional):
            raise UsageError(
                f"no base image of {distribution} is known for {backend}; "
                "name other backends with --backend, or leave out --distribution"
            )
        if not is_plain:
            note = f"the vendor's images for {distribution} are not known here: this one is plain."
            base = replace(base, note=note)
    base = replace(base, runtimes=build.base.runtimes, torch=build.base.torch)
    return replace(build, base=base, base_sources=sources)


def _without_python(build: BackendBuild, advice: Advice) -> BackendBuild:
    """Return the settings of a backend whose environments of conda have a Python of their own."""
    base = build.base
    if base is None:
        return build
    image = advice.plain.get(base.image, base.image)
    sources = build.base_sources if image == base.image else (f"{base.image} is made from it",)
    pythons = base.pythons if "{python}" in image else ()
    base = replace(base, image=image, pythons=pythons)
    return replace(build, base=base, base_sources=sources)


# From requirements


class Choice(Struct, frozen=True):
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
    distribution: str = "",
) -> str:
    """The text of a `buildmatrix.toml` whose comments say why each choice was made.

    Args:
        inputs: requirements files, or a `pyproject.toml`.
        root: the folder that the specification will lie in; by default the current one.
        named: the backends that it is for, by their names or aliases; none for those that the
            inputs are a reason for.
        locks: those that the project has. What is installed is what they hold.
        answers: what was asked of an index and of registries.
        distribution: that of the base images, `ubi9`; empty for the usual ones.

    Raises:
        UsageError: an input is missing, cannot be read, or lies outside of `root`; a backend is
            unknown, no image can be made for it, or no lock holds anything for it.
    """
    root = root or Path()
    catalogue = load()
    advice = _advice_for(distribution, catalogue)
    wanted = [_backend_named(name, catalogue, advice) for name in dict.fromkeys(named)]
    project = read_inputs(inputs, is_locked=bool(locks))
    if locks:
        paths = [relative_path(path, root) for path in locks]
        return locked_spec(inputs, paths, root, wanted, project, answers, distribution)
    distributions = dict(project.distributions)
    if answers.torch:
        distributions.setdefault("torch", answers.torch)
    choices = [
        Choice(distribution, place, package)
        for distribution, place in distributions.items()
        for package in advice.package
        if any(fnmatch.fnmatchcase(distribution, pattern) for pattern in package.name)
    ]
    usual = wanted or advice.backends
    own = {path: name for path in inputs if (name := _backend_in_name(path, usual))}
    backends = list(dict.fromkeys(wanted)) or (usual if choices or own else ["cpu"])
    builds = {name: _build_on(distribution, catalogue, name) for name in backends}
    pythons, why = fitting_pythons(project.requires_python, advice.pythons, builds.values())
    shared = [path for path in inputs if path not in own]
    parts = [
        _first_head(inputs, project, choices, is_said=bool(wanted), answers=answers),
        project_table(project, root),
        _defaults(shared, project, root, f"{toml_list(pythons[:1])}  # {why}"),
    ]
    for name, build in builds.items():
        chosen = starting_base(build, pythons, (), advice)
        runtimes = build.base.runtimes if build.base else {}
        lines = backend_head(name, build, runtimes, chosen, pythons[0], answers)
        if requirements := [relative_path(path, root) for path in own if own[path] == name]:
            lines.append(f"requirements = {toml_list(requirements)}  # beside those of [defaults]")
        if torch := [choice.name for choice in choices if choice.package.torch]:
            lines += [
                f"# Because of {', '.join(torch)}: torch comes from the index of this build only.",
                f"torch = {toml_string(build.base.torch if build.base else 'cpu')}",
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
        parts.append(text_of(lines))
    return "\n".join([*parts, last_tables(backends)])


def resolved_torch(inputs: Sequence[Path], root: Path) -> str | None:
    """Return the input that requires torch, by a resolution; see `Answers.torch`."""
    advice = read_advice()
    project = read_inputs(inputs)
    if "torch" in project.distributions:
        return ""
    pythons, _ = fitting_pythons(project.requires_python, advice.pythons, ())
    projects = [relative_path(path, root) for path in inputs if path.suffix == ".toml"]
    requirements = [relative_path(path, root) for path in inputs if path.suffix != ".toml"]
    base = advice.base.replace("{python}", pythons[0])
    return asker_of_torch(requirements, next(iter(projects), None), root, pythons[0], base)


def _backend_named(name: str, catalogue: Catalogue, advice: Advice) -> str:
    if name in advice.impossible:
        raise UsageError(f"there is no image for {name}: {advice.impossible[name]}")
    backend = find_backend(name, catalogue)
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


def _first_head(
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
