"""Fixes of findings, from the catalogue and the lock."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import Replacement
from buildmatrix.catalogue.releases import Gap, gap, routes_of, runtime_of_build, toolkit_line
from buildmatrix.facts.inventory.conda import CONDA_PREFIX, PREFIX
from buildmatrix.judge.model import Fix, SpecChange
from buildmatrix.judge.subject import Subject
from buildmatrix.locks.model import Package


def fix(subject: Subject, name: str, version: str | None, rule: str) -> Fix:
    """The fix for a foreign distribution.

    A twin for this backend comes first: of the distribution itself, then of the one that asked for
    it, and so on up to the requirement line. Where there is none, the twin for no accelerator, of
    which nothing is foreign. Then removal; then acceptance, with a reason.
    """
    orders = list(_orders(subject, name, version, subject.backend))
    own = [order for asker, order in orders if asker == name]
    can_go = bool(own) and own[0].action == "remove"
    if own and own[0].action == "set":
        return Fix(
            "rebuild",
            f"set {own[0].target} where {name} is installed{_note_of(own[0])}",
            f"ENV {own[0].target}\n",
        )
    # Where the twin does not do, its asker may do without.
    instead = (SpecChange("drop", name),) if can_go else ()
    for asker, order in orders:
        if order.action == "use" and order.target is not None:
            return _replace(subject, asker, order, instead)
        if order.action == "index":
            return index_fix(subject, asker)
    plain = [
        (backend, bool(entry.indexes), asker, order)
        for backend, entry in subject.catalogue.backends.items()
        if entry.vendor is None and backend != subject.backend
        for asker, order in _orders(subject, name, version, backend)
    ]
    # A backend that brings its own plugin takes the build for no accelerator from its index.
    for _, has_indexes, asker, order in plain:
        if has_indexes and order.action == "index":
            return index_fix(subject, asker)
    for backend, _, asker, order in plain:
        if order.action == "use" and order.target is not None:
            note = f"a build for the {backend}: none is known for {subject.backend}"
            return _replace(subject, asker, Replacement("use", order.target, note), instead)
    if can_go:
        text, patch = _entry(subject, f"drop = [{quote(name)}]")
        return Fix("remove", text + _note_of(own[0]), patch, (SpecChange("drop", name),))
    return _accept(subject, name, rule, own[0].note if own else None)


def index_fix(subject: Subject, name: str) -> Fix:
    """Take the torch family from the index that has builds for this backend."""
    head = _family_head(subject, name)
    if head is not None:
        target = subject.target
        missing = gap(head.name, head.version, target.backend, target.runtime, subject.catalogue)
        if missing is not None:
            return release_fix(subject, head.name, missing)
    route = _route(subject) or _plain_route(subject)
    if route is None:
        served = _newest_route(subject, head)
        such = f", such as uv's {quote(served)}" if served is not None else ""
        return Fix(
            "index", f"take {name} from an index that has builds for {subject.backend}{such}"
        )
    if subject.target.torch == route:
        # The routing is there and did not reach this distribution: no requirement names it.
        return Fix(
            "index",
            f"name {name} in a requirement file, so that `torch = {quote(route)}` covers it, and "
            "lock again",
        )
    alternative = "" if subject.target.project else f"take uv's `--torch-backend {route}`, or "
    text, patch = _entry(subject, f"torch = {quote(route)}")
    change = SpecChange("torch", "torch", route)
    return Fix("index", f"{alternative}{text}, and lock again", patch, (change,))


def release_fix(subject: Subject, name: str, missing: Gap) -> Fix:
    """Ask for a release that has a build for this backend."""
    if missing.nearest is None:
        return Fix(
            "pin",
            f"no release of {name} is known to have a build for {subject.target.id}: use another "
            "runtime, or remove it from the requirements",
        )
    nearest = missing.nearest
    line = f"torch = {quote(nearest.route)}"
    text = f"ask for `{name}=={nearest.release}.*`, with `{line}` under [backend.{subject.backend}]"
    if missing.others:
        text += f", or keep {missing.release} and make the target for {' or '.join(missing.others)}"
    return Fix("pin", text, _entry(subject, line)[1])


def line_fix(subject: Subject, name: str, version: str, line: str) -> Fix:
    """Take a distribution from the toolkit line that the target is for."""
    for package in reversed(subject.path_to(name)):
        match = distribution(package.name, package.version, subject.catalogue)
        if match is not None and match.is_routed:
            return index_fix(subject, package.name)
    # The first requested distribution brings the others.
    way = [(package.name, package.version) for package in subject.path_to(name)]
    for asker, asker_version in way or [(name, version)]:
        twin = _line_twin(subject, asker, asker_version, line)
        if twin is not None:
            return _replace(subject, asker, Replacement("use", twin), ())
    return Fix(
        "pin",
        f"require the build of {name} for {subject.backend} {line}: a version `{line}.*` of it, or "
        "the distribution that its project names after that line",
    )


def _line_twin(subject: Subject, name: str, version: str, line: str) -> str | None:
    """Return the name in this toolkit line of a distribution of another one."""
    match = distribution(name, version, subject.catalogue)
    if match is None or match.toolkit is None or match.toolkit == line:
        return None
    if match.backend != subject.backend or match.toolkit not in name:
        return None
    twin = name.replace(match.toolkit, line)
    # NVIDIA left the line out of some names, and keeps empty projects under the old kind of name.
    bare = name.removesuffix(f"-cu{match.toolkit}")
    for candidate in (twin, bare):
        other = distribution(candidate, "", subject.catalogue)
        if other is not None and other.entry == candidate:
            return candidate
    other = distribution(twin, "", subject.catalogue)
    return twin if other is not None and other.toolkit == line else None


def accept(rule: str, *, distribution: str | None = None, path: str | None = None) -> str:
    """A waiver to fill in."""
    lines = ["[[waive]]", f"rule = {quote(rule)}"]
    if distribution is not None:
        lines.append(f"distribution = {quote(distribution)}")
    if path is not None:
        lines.append(f"path = {quote(path)}")
    return "\n".join([*lines, 'reason = "..."', 'owner = "..."', "expires = YYYY-MM-DD"]) + "\n"


def _orders(
    subject: Subject, name: str, version: str | None, backend: str
) -> Iterator[tuple[str, Replacement]]:
    """Yield the catalogue's replacements on `backend` for a distribution and those that require it.

    The distribution itself comes first, the one that a requirement line names last.
    """
    way = [(package.name, package.version) for package in reversed(subject.path_to(name))]
    for asker, asker_version in way or [(name, version or "")]:
        match = distribution(asker, asker_version, subject.catalogue)
        order = match.replace.get(backend) if match is not None else None
        if order is not None:
            yield asker, order


def _replace(
    subject: Subject, name: str, order: Replacement, instead: tuple[SpecChange, ...]
) -> Fix:
    target = order.target or ""
    text, patch = _entry(subject, f"replace = {{ {name} = {quote(target)} }}")
    alternative = "" if subject.target.project else f"ask for {target} instead of {name}, or "
    changes = (SpecChange("replace", name, target), *instead)
    return Fix("replace", alternative + text + _note_of(order), patch, changes)


def _accept(subject: Subject, name: str, rule: str, note: str | None) -> Fix:
    reason = f" ({note})" if note else ""
    if name.startswith(PREFIX):
        first = next(iter(subject.chain_to(name)), PREFIX)
        where = "package.json" if first.startswith(PREFIX) else first.rpartition(":")[0]
        return Fix(
            "waive",
            f"remove {_asked_for(subject, name)} from {where}, delete these files in the step that "
            "installs them, or accept it with a [[waive]]",
            accept(rule, distribution=name),
        )
    if name.startswith(CONDA_PREFIX):
        return Fix(
            "pin",
            f"ask for a build of {_asked_for(subject, name).removeprefix(CONDA_PREFIX)} for "
            f"{subject.backend}, or remove it, in what the lock is made from, and lock again; else "
            "accept it with a [[waive]]",
            accept(rule, distribution=name),
        )
    match = distribution(name, "", subject.catalogue)
    shared = match is not None and match.kind == "multi-backend"
    why = f"no build of {name} for {subject.backend} is known{reason}"
    if shared:
        why = f"{name} is one wheel for several backends{reason}"
    if rule == "BM301" and not shared:
        # Its links are decided by its build; only a build shows if it works.
        text, entry = _entry(subject, f"no-binary = [{quote(name)}]")
        return Fix(
            "rebuild",
            f"{why}: build it from source, where its project can be built for {subject.backend} "
            f"({text}); else remove it from the requirements",
            entry,
        )
    return Fix(
        "waive",
        f"{why}: remove {_asked_for(subject, name)} from the requirements, or accept it with a "
        "[[waive]]",
        accept(rule, distribution=name),
    )


def _asked_for(subject: Subject, name: str) -> str:
    """Return the requirement that a line would have to drop."""
    way = subject.path_to(name)
    return "it" if not way or way[0].name == name else f"{way[0].name}, which brings it,"


def _entry(subject: Subject, line: str) -> tuple[str, str]:
    where = f"[backend.{subject.backend}]"
    return f"write `{line}` under {where}", f"{where}\n{line}\n"


def _note_of(order: Replacement) -> str:
    return f" ({order.note})" if order.note else ""


def _route(subject: Subject) -> str | None:
    """Uv's name of the index for the target's backend and runtime; the newest of its line else."""
    entry = subject.catalogue.backends.get(subject.backend)
    routes = entry.indexes if entry else ()
    line = toolkit_line(subject.target.runtime)
    exact = [route for route in routes if runtime_of_build(route.name) == subject.target.runtime]
    any_runtime = [route for route in routes if route.toolkit is None]
    same_line = [route for route in routes if line is not None and route.toolkit == line]
    best = exact[:1] or any_runtime[:1] or same_line[-1:]
    return best[0].name if best else None


def _plain_route(subject: Subject) -> str | None:
    """Return the index of builds without an accelerator, if this backend has no index.

    Such a backend (OpenVINO, TPU, NPU) brings a plugin that works with these builds.
    """
    own = subject.catalogue.backends.get(subject.backend)
    if own is not None and own.indexes:
        return None
    plain = (entry for entry in subject.catalogue.backends.values() if entry.vendor is None)
    return next((entry.indexes[0].name for entry in plain if entry.indexes), None)


def _family_head(subject: Subject, name: str) -> Package | None:
    """Return the locked distribution whose release determines the builds of `name`.

    That is `torch` for torchaudio: its own releases are numbered otherwise, and each goes with one
    of torch.
    """
    backends = subject.catalogue.backends.values()
    families = {route.family for backend in backends for route in backend.indexes}
    heads = (subject.packages.get(family) for family in (*sorted(families), name))
    return next((package for package in heads if package is not None), None)


def _newest_route(subject: Subject, head: Package | None) -> str | None:
    """Return the route with the release in the lock, else the one with the newest release."""
    entry = subject.catalogue.backends.get(subject.backend)
    if entry is None or not entry.releases:
        return None
    if head is not None:
        served = routes_of(head.name, head.version, entry)
        if served:
            return served[-1]
    newest = max(
        entry.releases, key=lambda release: [int(part) for part in release.version.split(".")]
    )
    return newest.routes[-1] if newest.routes else None


def quote(text: str) -> str:
    """Return a basic string of TOML. File names may contain anything, and must stay one value."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    number = ord(char)
    return f"\\u{number:04X}" if number < 0x10000 else f"\\U{number:08X}"
