"""What to write so that a finding goes away, taken from the catalogue and the lock."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.match import distribution
from buildmatrix.catalogue.model import Replacement
from buildmatrix.compat.runtimes import built_for, toolkit_line
from buildmatrix.rules.model import Fix
from buildmatrix.rules.subject import Subject


def fix(subject: Subject, name: str, version: str | None, rule: str) -> Fix:
    """The fix for a foreign distribution.

    A twin for this backend comes first: of the distribution itself, then of the one that asked for
    it, and so on up to the requirement line. Then removal; then acceptance, with a reason.
    """
    orders = list(_orders(subject, name, version))
    for asker, order in orders:
        if order.action == "use" and order.target is not None:
            return _replace(subject, asker, order)
        if order.action == "index":
            return index_fix(subject, asker)
    own = [order for asker, order in orders if asker == name]
    if own and own[0].action == "remove":
        return _remove(subject, name, own[0])
    return _accept(subject, name, rule, own[0].note if own else None)


def index_fix(subject: Subject, name: str) -> Fix:
    """Take the torch family from the index that has builds for this backend."""
    route = _route(subject)
    if route is None:
        return Fix("index", f"take {name} from an index that has builds for {subject.backend}")
    if subject.target.torch == route:
        # The routing is there and did not reach this distribution: nobody names it directly.
        return Fix(
            "index",
            f"name {name} in a requirement file, so that `torch = {quoted(route)}` covers it, and "
            "lock again",
        )
    return Fix(
        "index",
        f"write `torch = {quoted(route)}` under [backend.{subject.backend}], and lock again",
        f"[backend.{subject.backend}]\ntorch = {quoted(route)}\n",
    )


def line_fix(subject: Subject, name: str, version: str, line: str) -> Fix:
    """Take a distribution from the toolkit line that the target is for."""
    for package in reversed(subject.path_to(name)):
        match = distribution(package.name, package.version, subject.catalogue)
        if match is not None and any(o.action == "index" for o in match.replace.values()):
            return index_fix(subject, package.name)
    match = distribution(name, version, subject.catalogue)
    if match is not None and match.toolkit is not None and match.toolkit in name:
        twin = name.replace(match.toolkit, line)
        other = distribution(twin, "", subject.catalogue)
        if other is not None and other.toolkit == line:
            return Fix("replace", *_entry(subject, f"replace = {{ {name} = {quoted(twin)} }}"))
    return Fix(
        "pin",
        f"require the build of {name} for {subject.backend} {line}: a version `{line}.*` of it, or "
        "the distribution that its project names after that line",
    )


def accept(rule: str, *, distribution: str | None = None, path: str | None = None) -> str:
    """A waiver to fill in."""
    lines = ["[[waive]]", f"rule = {quoted(rule)}"]
    if distribution is not None:
        lines.append(f"distribution = {quoted(distribution)}")
    if path is not None:
        lines.append(f"path = {quoted(path)}")
    return "\n".join([*lines, 'reason = "..."', 'owner = "..."', "expires = YYYY-MM-DD"]) + "\n"


def _orders(subject: Subject, name: str, version: str | None) -> Iterator[tuple[str, Replacement]]:
    """What the catalogue says to do about a distribution and about those that asked for it."""
    way = [(package.name, package.version) for package in reversed(subject.path_to(name))]
    for asker, asker_version in way or [(name, version or "")]:
        match = distribution(asker, asker_version, subject.catalogue)
        order = match.replace.get(subject.backend) if match is not None else None
        if order is not None:
            yield asker, order


def _replace(subject: Subject, name: str, order: Replacement) -> Fix:
    target = order.target or ""
    text, patch = _entry(subject, f"replace = {{ {name} = {quoted(target)} }}")
    return Fix("replace", text + _aside(order), patch)


def _remove(subject: Subject, name: str, order: Replacement) -> Fix:
    text, patch = _entry(subject, f"drop = [{quoted(name)}]")
    return Fix("remove", text + _aside(order), patch)


def _accept(subject: Subject, name: str, rule: str, note: str | None) -> Fix:
    reason = f" ({note})" if note else ""
    return Fix(
        "waive",
        f"no build of {name} for {subject.backend} is known{reason}: take it out of the "
        "requirements, or accept it with a [[waive]]",
        accept(rule, distribution=name),
    )


def _entry(subject: Subject, line: str) -> tuple[str, str]:
    where = f"[backend.{subject.backend}]"
    return f"write `{line}` under {where}", f"{where}\n{line}\n"


def _aside(order: Replacement) -> str:
    return f" ({order.note})" if order.note else ""


def _route(subject: Subject) -> str | None:
    """Uv's name of the index for the target's backend and runtime; the newest of its line else."""
    entry = subject.catalogue.backends.get(subject.backend)
    routes = entry.indexes if entry else ()
    line = toolkit_line(subject.target.runtime)
    exact = [route for route in routes if built_for(route.name) == subject.target.runtime]
    any_runtime = [route for route in routes if route.toolkit is None]
    same_line = [route for route in routes if line is not None and route.toolkit == line]
    best = exact[:1] or any_runtime[:1] or same_line[-1:]
    return best[0].name if best else None


def quoted(text: str) -> str:
    """A basic string of TOML; names and globs of ours hold nothing to escape but these."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
