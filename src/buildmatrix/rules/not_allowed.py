"""BM608: what the lists of the policy forbid, or do not allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.utils import canonicalize_name

from buildmatrix.catalogue.names import demangle, matches, matches_any
from buildmatrix.parsing import parse_specifiers, version_or_none
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import chain_to_file, finding
from buildmatrix.rules.licenses import accepted, licenses, names
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.redistribution import find_withheld, is_about_redistribution
from buildmatrix.rules.subject import ImageSubject, Present
from buildmatrix.spec.kinds import distribution_part
from buildmatrix.spec.model import Listed


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution for its name, one for its license, one for each entry that is
    about its libraries, and one for what its license does not let everybody pass on.
    """
    yield from _distributions(image)
    yield from _libraries(image)
    yield from _licenses(image)
    yield from _withheld(image)


def entries(lists: Mapping[str, tuple[Listed, ...]], backend: str) -> tuple[Listed, ...]:
    """Return the entries of a list for a backend, with those for all backends."""
    return (*lists.get("*", ()), *lists.get(backend, ()))


def license_lists(image: ImageSubject) -> tuple[Sequence[Listed], Sequence[Listed]]:
    """Licenses that are forbidden and those that are allowed."""
    forbidden = entries(image.policy.forbid.licenses, image.backend)
    return (
        [entry for entry in forbidden if not is_about_redistribution(entry)],
        entries(image.policy.allow.licenses, image.backend),
    )


def redistribution_asked(image: ImageSubject) -> Listed | None:
    """The entry that forbids what may not be passed on; None without one."""
    forbidden = entries(image.policy.forbid.licenses, image.backend)
    return next((entry for entry in forbidden if is_about_redistribution(entry)), None)


def _distributions(image: ImageSubject) -> Iterator[Finding]:
    forbidden = entries(image.policy.forbid.distributions, image.backend)
    allowed = entries(image.policy.allow.distributions, image.backend)
    for present in image.present if forbidden or allowed else ():
        entry = next((entry for entry in forbidden if _is_meant(entry, present, True)), None)
        if entry is not None:
            why = _forbidden(entry, "distributions")
        elif allowed and not any(_is_meant(entry, present, False) for entry in allowed):
            why = _missing(allowed, "distributions")
        else:
            continue
        yield finding(
            "BM608",
            image,
            f"{present} {why}",
            owner=present.owner,
            path=present.path,
            chain=image.chain_to(present.name) or (str(present),),
            fix=_fix(f"take {present.name} out of what asks for it", "distributions"),
            identity="distributions",
        )


def _is_meant(entry: Listed, present: Present, otherwise: bool) -> bool:
    """Return True if an entry is about a distribution; `otherwise` if its version is unknown."""
    name = distribution_part(entry.text)
    glob = name if "*" in name or "?" in name else canonicalize_name(name)
    if not matches(glob.lower().replace("_", "-").replace(".", "-"), present.name):
        return False
    versions = entry.text[len(name) :].strip()
    if not versions:
        return True
    version = version_or_none(present.version)
    if version is None:
        return otherwise
    return parse_specifiers(versions).contains(version, prereleases=True)


def _libraries(image: ImageSubject) -> Iterator[Finding]:
    forbidden = entries(image.policy.forbid.libraries, image.backend)
    allowed = entries(image.policy.allow.libraries, image.backend)
    if not (forbidden or allowed):
        return
    by_reason: dict[tuple[str | None, str], list[str]] = {}
    for path, owner, soname in _files(image):
        entry = next((e for e in forbidden if matches_any([e.text], soname or _name(path))), None)
        entry = entry or next((e for e in forbidden if matches(e.text, _name(path))), None)
        if entry is not None:
            by_reason.setdefault((owner, _forbidden(entry, "libraries")), []).append(path)
        elif allowed and soname and owner and not matches_any([e.text for e in allowed], soname):
            by_reason.setdefault((owner, _missing(allowed, "libraries")), []).append(path)
    for (owner, why), paths in by_reason.items():
        shown = listing(path.rpartition("/")[2] for path in paths)
        brings = f"{owner.replace('==', ' ')} brings {shown}, which" if owner else shown
        yield finding(
            "BM608",
            image,
            f"{brings} {why}",
            owner=owner,
            path=paths[0],
            chain=chain_to_file(image, owner, paths[0]),
            fix=_fix("take out what brings it", "libraries"),
            identity=f"libraries {why.partition(' (')[0]}",
        )


def _files(image: ImageSubject) -> Iterator[tuple[str, str | None, str]]:
    """Path, owner and soname of shared libraries; of one that stayed closed only the name."""
    for binary in image.inventory.loadable:
        if binary.elf.type == "dyn":
            yield binary.path, binary.owner, demangle(binary.elf.soname or "")
    for file in image.inventory.closed:
        if ".so" in file.path.rpartition("/")[2]:
            yield file.path, file.owner, ""


def _name(path: str) -> str:
    return demangle(path.rpartition("/")[2])


def _licenses(image: ImageSubject) -> Iterator[Finding]:
    forbidden, allowed = license_lists(image)
    for item in image.inventory.distributions if forbidden or allowed else ():
        expressions = licenses(item)
        if not expressions or accepted(expressions, allowed, forbidden) != "no":
            continue
        entry = next((entry for entry in forbidden if names(expressions, entry)), None)
        why = _forbidden(entry, "licenses") if entry else _missing(allowed, "licenses")
        owner = item.owner
        yield finding(
            "BM608",
            image,
            f"{item.name} {item.version} has the license {listing(expressions)}, which {why}",
            owner=owner,
            path=item.path,
            chain=chain_to_file(image, owner, item.path),
            fix=_fix(f"take {item.name} out of what asks for it", "licenses"),
            identity="licenses",
        )


def _withheld(image: ImageSubject) -> Iterator[Finding]:
    entry = redistribution_asked(image)
    if entry is None:
        return
    for owner, license, paths in find_withheld(image):
        shown = listing(path.rpartition("/")[2] for path in paths)
        brings = f"{owner.replace('==', ' ')} brings {shown}" if owner else shown
        yield finding(
            "BM608",
            image,
            f"{brings}: the {license} does not list that as what may be passed on, and this "
            f"{_forbidden(entry, 'licenses')}",
            owner=owner,
            path=paths[0],
            chain=chain_to_file(image, owner, paths[0]),
            fix=_fix("leave it in the stage that builds, and out of the image", "licenses"),
            identity="redistribution",
        )


def _forbidden(entry: Listed, kind: str) -> str:
    return f"is forbidden: `forbid-{kind}` under [policy] has `{entry.text}` ({entry.position})"


def _missing(allowed: Sequence[Listed], kind: str) -> str:
    return f"is not allowed: `allow-{kind}` under [policy] does not list it ({allowed[0].position})"


def _fix(advice: str, kind: str) -> Fix:
    return Fix("remove", f"{advice}, or change the lists of {kind} under [policy]")
