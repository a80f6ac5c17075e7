"""The first specification of a project, written from what it already has."""

from __future__ import annotations

import fnmatch
import os.path
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib.resources import files
from pathlib import Path, PurePath

import msgspec
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name

from buildmatrix.catalogue.building import BackendBuild, backend_build
from buildmatrix.catalogue.listing import backend_named
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.commands.init.asking import asker_of_torch
from buildmatrix.commands.init.inputs import ProjectInputs, read_inputs
from buildmatrix.commands.init.locked import LockedPart, LockedProject, OpenPart, read_locked
from buildmatrix.errors import UsageError
from buildmatrix.parsing import parse_specifiers
from buildmatrix.phrases import listing
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
class Answers:
    """What an index and registries said; of these nothing, if nobody asked them."""

    #: What requires torch, directly or not; empty for nothing, None where nothing was resolved.
    torch: str | None = ""
    #: Image → its digest; empty where no registry answered.
    digest: Callable[[str], str] = lambda _: ""


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


def first_spec(
    inputs: Sequence[Path],
    root: Path | None = None,
    named: Sequence[str] = (),
    *,
    locks: Sequence[Path] = (),
    answers: Answers = Answers(),
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
        return _locked_spec(
            inputs, [_relative(path, root) for path in locks], root, wanted, project, answers
        )
    choices = _choices(project, advice, answers)
    usual = wanted or advice.backends
    own = {path: name for path in inputs if (name := _backend_in_name(path, usual))}
    backends = list(dict.fromkeys(wanted)) or (usual if choices or own else ["cpu"])
    builds = {name: backend_build(catalogue, name) for name in backends}
    pythons, why = _pythons(project.requires_python, advice.pythons, builds.values())
    shared = [path for path in inputs if path not in own]
    head = _head(inputs, project, choices, is_said=bool(wanted), answers=answers)
    parts = [
        head,
        _project(project, root),
        _defaults(shared, project, root, f"{_list(pythons[:1])}  # {why}"),
        *(
            _backend(
                name,
                build,
                advice,
                choices,
                [_relative(path, root) for path in own if own[path] == name],
                _starting_base(build, pythons, (), advice),
                answers,
                pythons[0],
            )
            for name, build in builds.items()
        ),
        _tail(backends),
    ]
    return "\n".join(parts)


def resolved_torch(inputs: Sequence[Path], root: Path) -> str | None:
    """What of the inputs requires torch, by a resolution; see `Answers.torch`."""
    advice = read_advice()
    project = read_inputs(inputs)
    if "torch" in project.distributions:
        return ""
    pythons, _ = _pythons(project.requires_python, advice.pythons, ())
    projects = [_relative(path, root) for path in inputs if path.suffix == ".toml"]
    requirements = [_relative(path, root) for path in inputs if path.suffix != ".toml"]
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


def _defaults(inputs: Sequence[Path], project: ProjectInputs, root: Path, python: str) -> str:
    lines = ["[defaults]", f"python = {python}"]
    requirements = [_relative(path, root) for path in inputs if path.suffix != ".toml"]
    if requirements:
        lines.append(f"requirements = {_list(requirements)}")
    if projects := [_relative(path, root) for path in inputs if path.suffix == ".toml"]:
        if len(projects) > 1:
            raise UsageError(f"name one pyproject.toml, not {len(projects)}")
        lines.append(f"pyproject = {toml_string(projects[0])}")
        lines += _own_package(project)
        offered = [e for e in project.extras if canonicalize_name(e) not in project.conflicting]
        if offered:
            lines.append(f"# extras = {_list(offered)}  # what {projects[0]} offers")
    return _lines([*lines, *_further(project)])


def _own_package(project: ProjectInputs) -> list[str]:
    if not project.is_package:
        return []
    scripts = f", with {', '.join(project.scripts[:3])}" if project.scripts else ""
    return [f"install-project = true  # the project itself{scripts}"]


def _further(project: ProjectInputs) -> list[str]:
    """Settings that a first specification leaves to its reader."""
    command = _list(project.scripts[:1] or ["python", "-m", "app"])
    copied = (
        []
        if project.is_package
        else ['# copy = [["src", "/app"]]  # what else goes into the image']
    )
    return [
        *copied,
        f"# command = {command}",
        '# variant = ["server"]  # the last part of identifiers; "default" where it is not said',
    ]


def _pythons(
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
class _ChosenBase:
    """The base image of a backend, and what follows from it."""

    image: str
    #: The Python of its images, where that is not the project's, and why.
    python: str = ""
    python_note: str = "that of the base image"
    #: Why it is not the vendor's.
    note: str = ""


def _starting_base(
    build: BackendBuild, pythons: Sequence[str], runtimes: Sequence[str], advice: Advice
) -> _ChosenBase:
    """The vendor's image where it has one of `pythons`, and is for all `runtimes`."""
    base = build.base
    if base is None:
        return _ChosenBase(advice.base)
    if unknown := [name for name in runtimes if base.runtimes and name not in base.runtimes]:
        return _ChosenBase(advice.base, note=f"no image for {', '.join(unknown)} is known here")
    if not base.pythons or pythons[0] in base.pythons:
        return _ChosenBase(base.image)
    shared = [version for version in pythons if version in base.pythons]
    if shared or not base.optional:
        return _ChosenBase(base.image, python=shared[0] if shared else base.pythons[-1])
    has = ", ".join(base.pythons)
    return _ChosenBase(advice.base, note=f"{base.image} has Python {has}, which does not fit")


def _base_lines(
    base: _ChosenBase,
    build: BackendBuild,
    runtime: Mapping[str, str],
    python: str,
    answers: Answers,
) -> Iterator[str]:
    """The lines of `python` and `base`: with the digest of the image, if it is one image."""
    if base.python:
        yield f"python = {_list([base.python])}  # {base.python_note}"
    if base.note:
        yield from (f"# {line}" for line in textwrap.wrap(f"Not the vendor's: {base.note}.", 96))
    values = {f"{{runtime.{key}}}": value for key, value in runtime.items()}
    image = base.image.replace("{python}", base.python or python)
    for key, value in values.items():
        image = image.replace(key, value)
    digest = "" if "{" in image else answers.digest(image)
    if digest:
        yield f"base = {toml_string(f'{image}@{digest}')}"
    else:
        yield f"base = {toml_string(base.image)}"
    if build.base and build.base.packages:
        yield f"system-packages = {_list(build.base.packages)}  # the user-mode driver"


def _backend(
    name: str,
    build: BackendBuild,
    advice: Advice,
    choices: Sequence[Choice],
    requirements: Sequence[str],
    chosen: _ChosenBase,
    answers: Answers,
    python: str,
) -> str:
    base = build.base
    lines = [_comment(*_about(build)).rstrip("\n"), f"[backend.{name}]"]
    runtimes = base.runtimes if base else {}
    if runtimes:
        lines.append(_runtimes(runtimes))
    else:
        lines.append('runtime = "any"  # no version lines')
    only = next(iter(runtimes.values())) if len(runtimes) == 1 else {}
    lines += _base_lines(chosen, build, only, python, answers)
    if requirements:
        lines.append(f"requirements = {_list(requirements)}  # beside those of [defaults]")
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


def _runtimes(runtimes: Mapping[str, Mapping[str, str]]) -> str:
    texts = ", ".join(
        f"{toml_string(runtime)} = {{ {_pairs(values)} }}"
        if values
        else f"{toml_string(runtime)} = {{}}"
        for runtime, values in runtimes.items()
    )
    return f"runtime = {{ {texts} }}  # one set of targets for each"


# A project with a lock


def _locked_spec(
    inputs: Sequence[Path],
    locks: Sequence[str],
    root: Path,
    wanted: Sequence[str],
    project: ProjectInputs,
    answers: Answers,
) -> str:
    """The specification of a project whose lock is installed as it is."""
    advice, catalogue = read_advice(), load()
    builds = {name: backend_build(catalogue, name) for name in wanted or advice.backends}
    pythons, _ = _pythons(project.requires_python, advice.pythons, builds.values())
    bases = [build.base for build in builds.values() if build.base and not build.base.optional]
    pythons += sorted({p for base in bases for p in base.pythons} - set(pythons))
    locked = read_locked(root, locks, pythons, catalogue, advice.base)
    sections = {
        name: _locked_backend(name, backend_build(catalogue, name), locked, answers)
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
        f"python = {_list([locked.python])}  # one that the lock is for{others}",
        *([f"lock = {toml_string(locked.lock)}"] if locked.lock else []),
    ]
    if own := [path for path in inputs if path.name == "pyproject.toml"]:
        defaults += [f"pyproject = {toml_string(_relative(own[0], root))}"] * project.is_package
        defaults += _own_package(project)
    for key, names in (("extras", locked.extras), ("groups", locked.groups)):
        defaults += [f"# {key} = {_list(names)}  # what else the lock offers"] * bool(names)
    return "\n".join(
        [
            _locked_head(inputs, locked),
            _project(project, root),
            _lines([*defaults, *_further(project)]),
            *(sections[name] for name in backends),
            _tail(backends),
        ]
    )


def _locked_head(inputs: Sequence[Path], locked: LockedProject) -> str:
    names = ", ".join([*locked.locks, *(path.name for path in inputs)])
    lines = [
        f"Written by `buildmatrix init` from {names}. It is a start: read it, change it.",
        f"The files that are locked in {listing(locked.locks)} are installed; nothing is resolved.",
    ]
    if locked.open:
        lines.append("These parts belong to no backend here:")
        for part in locked.open:
            use = f"; to use it: {part.line}" if part.line else ""
            lines.append(f"- {part.label}: {part.why}{use}")
    return _comment(*lines) + "schema = 1\n"


def _locked_backend(name: str, build: BackendBuild, locked: LockedProject, answers: Answers) -> str:
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
            locked.open.append(OpenPart.of(part, f"{parts[key].label} is for {name} {key} already"))
        elif bool(part.extras) != bool(first.extras):
            locked.open.append(OpenPart.of(part, f"it is no part of the kind of {first.label}"))
        else:
            runtimes[key] = {k: value for k, value in values.items() if k != "torch"}
            parts[key] = part
    if not parts:
        return ""
    pythons = locked.pythons[name]
    chosen = _starting_base(build, pythons, [key for key in parts if key != "any"], read_advice())
    if chosen.python and chosen.python not in pythons:
        why = f"its base image {chosen.image} has Python {chosen.python}, which the lock is not for"
        locked.open += [OpenPart.of(part, why, is_usable=False) for part in parts.values()]
        return ""
    if not chosen.python and pythons[0] != locked.python:
        chosen = replace(chosen, python=pythons[0], python_note="one that this part is for")
    several = len(parts) > 1
    first = next(iter(parts.values()))
    settings: list[str] = []
    for key, names in (("extras", "extra"), ("groups", "group")):
        if not getattr(first, key):
            continue
        if several:
            for runtime, part in parts.items():
                runtimes[runtime][names] = getattr(part, key)[0]
            settings.append(f'{key} = ["{{runtime.{names}}}"]')
        else:
            settings.append(f"{key} = {_list(getattr(first, key))}")
    if not locked.lock:
        if len({part.lock for part in parts.values()}) == 1:
            settings.insert(0, f"lock = {toml_string(first.lock)}")
        else:
            folder = "".join(first.lock.rpartition("/")[:2])
            for runtime, part in parts.items():
                runtimes[runtime]["lock"] = part.lock.rpartition("/")[2]
            settings.insert(0, f'lock = "{folder}{{runtime.lock}}"')
    return _lines(
        [
            _comment(*_about(build)).rstrip("\n"),
            f"[backend.{name}]",
            'runtime = "any"  # no version lines'
            if list(parts) == ["any"]
            else _runtimes(runtimes),
            *_base_lines(
                chosen,
                build,
                {} if several else next(iter(runtimes.values())),
                locked.python,
                answers,
            ),
            *settings,
        ]
    )


def _known_runtime(
    runtime: str, known: Mapping[str, Mapping[str, str]]
) -> tuple[str, Mapping[str, str]]:
    """The version line to write for one that a lock says, `12` or `12.9`, and its values."""
    for key, values in known.items():
        if not runtime or key == runtime or key.startswith(f"{runtime}."):
            return key, values
    return (runtime, {}) if runtime and known else ("any", {})


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
