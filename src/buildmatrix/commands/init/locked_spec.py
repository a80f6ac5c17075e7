"""The first specification of a project with a lock: what is installed is what it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.lookup import BackendBuild, backend_build
from buildmatrix.commands.init.inputs import ProjectInputs
from buildmatrix.commands.init.locked import LockedPart, LockedProject, OpenPart, read_locked
from buildmatrix.commands.init.sections import (
    Answers,
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
)
from buildmatrix.errors import UsageError
from buildmatrix.phrases import listing
from buildmatrix.spec.document import toml_string


def locked_spec(
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
    pythons, _ = fitting_pythons(project.requires_python, advice.pythons, builds.values())
    bases = [build.base for build in builds.values() if build.base and not build.base.optional]
    pythons += sorted({p for base in bases for p in base.pythons} - set(pythons))
    locked = read_locked(
        root, locks, pythons, catalogue, advice.base, install_project=project.is_package
    )
    sections = {
        name: _backend(name, backend_build(catalogue, name), locked, answers)
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
    if own := [path for path in inputs if path.name == "pyproject.toml"]:
        defaults += [f"pyproject = {toml_string(relative_path(own[0], root))}"] * project.is_package
        defaults += own_package(project)
    for key, names in (("extras", locked.extras), ("groups", locked.groups)):
        defaults += [f"# {key} = {toml_list(names)}  # what else the lock offers"] * bool(names)
    return "\n".join(
        [
            _head(inputs, locked),
            project_table(project, root),
            text_of([*defaults, *further_settings(project)]),
            *(sections[name] for name in backends),
            last_tables(backends),
        ]
    )


def _head(inputs: Sequence[Path], locked: LockedProject) -> str:
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
    return comment_of(*lines) + "schema = 1\n"


def _backend(name: str, build: BackendBuild, locked: LockedProject, answers: Answers) -> str:
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
    chosen = starting_base(build, pythons, [key for key in parts if key != "any"], read_advice())
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
            settings.append(f"{key} = {toml_list(getattr(first, key))}")
    if not locked.lock:
        if len({part.lock for part in parts.values()}) == 1:
            settings.insert(0, f"lock = {toml_string(first.lock)}")
        else:
            folder = "".join(first.lock.rpartition("/")[:2])
            for runtime, part in parts.items():
                runtimes[runtime]["lock"] = part.lock.rpartition("/")[2]
            settings.insert(0, f'lock = "{folder}{{runtime.lock}}"')
    return text_of(
        [
            comment_of(*about_backend(build)).rstrip("\n"),
            f"[backend.{name}]",
            'runtime = "any"  # no version lines'
            if list(parts) == ["any"]
            else runtime_line(runtimes),
            *base_lines(
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
