"""Licenses of distributions and files, and the lists of the policy: BM608 and BM609."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

from buildmatrix.base.parsing import parse_specifiers, version_or_none
from buildmatrix.base.text import listing
from buildmatrix.catalogue.entries import Redistribution
from buildmatrix.catalogue.model import demangle, matches, matches_any
from buildmatrix.facts.inventory.model import Distribution
from buildmatrix.judge.findings import finding
from buildmatrix.judge.fixes import accept
from buildmatrix.judge.model import Finding, Fix
from buildmatrix.judge.subject import ImageSubject, Present
from buildmatrix.matrix.kinds import distribution_part
from buildmatrix.matrix.model import Listed

# SPDX license expressions (SPDX 2.3, annex D; PEP 639).
#
# Older metadata says less: the header `License` is free text, and some classifiers name a family of
# licenses. A family is a pattern (`BSD-*`), and a list with only some of its licenses does not
# decide.


Answer = Literal["yes", "unknown", "no"]
#: From the worst to the best, as words of an expression.
_ANSWERS: Mapping[str, Answer] = {"=no": "no", "=unknown": "unknown", "=yes": "yes"}
_rank = tuple(_ANSWERS.values()).index

#: License without an SPDX identifier: rights that only the vendor's terms give.
PROPRIETARY = "LicenseRef-Proprietary"
#: Classifiers of PyPI (trove-classifiers 2026.1) below `License ::`, without `OSI Approved ::`.
_CLASSIFIERS = {
    "Apache Software License": "Apache-*",
    "Artistic License": "Artistic-*",
    "BSD License": "BSD-*",
    "Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "GNU Affero General Public License v3": "AGPL-3.0*",
    "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
    "GNU General Public License (GPL)": "GPL-*",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.0-only",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL-*",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Other/Proprietary License": PROPRIETARY,
    "Python Software Foundation License": "PSF-*",
    "The Unlicense (Unlicense)": "Unlicense",
    "Universal Permissive License (UPL)": "UPL-1.0",
    "zlib/libpng License": "Zlib",
}
#: Texts of the header `License`, in lower case and without `the` and `license`.
_TEXTS = {
    "apache": "Apache-*",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache software": "Apache-*",
    "apache software 2.0": "Apache-2.0",
    "apache version 2.0": "Apache-2.0",
    "bsd": "BSD-*",
    "bsd 2-clause": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd-3": "BSD-3-Clause",
    "3-clause bsd": "BSD-3-Clause",
    "modified bsd": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "gplv2": "GPL-2.0*",
    "gplv3": "GPL-3.0*",
    "lgpl": "LGPL-*",
    "mpl 2.0": "MPL-2.0",
    "nvidia proprietary software": PROPRIETARY,
    "proprietary": PROPRIETARY,
    "psf": "PSF-*",
}
#: Parentheses without others in them, and how deep they may nest.
_INNERMOST = re.compile(r"\(([^()]*)\)")
_DEEPEST = 20


def licenses(distribution: Distribution) -> tuple[str, ...]:
    """Return the licenses in its metadata as SPDX expressions; empty if unknown.

    Several come from classifiers, which do not say whether all apply or any.
    """
    if distribution.license_expression:
        return _canonical(distribution.license_expression)
    text = distribution.license
    words = " ".join(re.sub(r"\b(the|license)\b|,", " ", text.lower()).split())
    if exact := (_canonical(text) if text else ()) or tuple(filter(None, [_TEXTS.get(words)])):
        return exact
    names = (name.rpartition(" :: ")[2] for name in distribution.license_classifiers)
    return tuple(dict.fromkeys(_CLASSIFIERS[name] for name in names if name in _CLASSIFIERS))


def check_expressions(
    expressions: Sequence[str], allowed: Sequence[Listed], forbidden: Sequence[Listed]
) -> Answer:
    """Return the answer of lists for a license. One of the alternatives (`OR`) is enough."""
    answers = {_expression(text, allowed, forbidden) for text in expressions}
    return answers.pop() if len(answers) == 1 else "unknown"


def names(expressions: Sequence[str], entry: Listed) -> bool:
    """Return True if an entry of a list applies to some license of an expression."""
    leaves = [leaf for text in expressions for leaf in re.split(r" AND | OR ", text)]
    return any(_fits_license(leaf.strip("() "), entry) == "yes" for leaf in leaves)


def _canonical(text: str) -> tuple[str, ...]:
    try:
        return (canonicalize_license_expression(text),)
    except (InvalidLicenseExpression, ValueError, SyntaxError, RecursionError, MemoryError):
        return ()


def _expression(text: str, allowed: Sequence[Listed], forbidden: Sequence[Listed]) -> Answer:
    """Return the answer for a canonical expression: innermost parentheses first."""

    def alternatives(text: str) -> Answer:
        # A word that is an answer replaces parentheses.
        words = ([word.strip() for word in part.split(" AND ")] for part in text.split(" OR "))
        answers = (
            min((_ANSWERS.get(word) or _leaf(word, allowed, forbidden) for word in part), key=_rank)
            for part in words
        )
        return max(answers, key=_rank)

    for _ in range(_DEEPEST + 1):
        if "(" not in text:
            return alternatives(text)
        text = _INNERMOST.sub(lambda match: f"={alternatives(match[1])}", text)
    return "unknown"


def _leaf(leaf: str, allowed: Sequence[Listed], forbidden: Sequence[Listed]) -> Answer:
    refused = _best_answer(leaf, forbidden)
    if refused == "yes":
        return "no"
    let_in = _best_answer(leaf, allowed) if allowed else "yes"
    return "unknown" if refused == "unknown" and let_in == "yes" else let_in


def _best_answer(leaf: str, entries: Sequence[Listed]) -> Answer:
    return max((_fits_license(leaf, entry) for entry in entries), key=_rank, default="no")


def _fits_license(leaf: str, entry: Listed) -> Answer:
    """Return the answer of an entry for a license; it applies with any exception, too."""
    text, pattern = leaf.lower(), entry.text.lower()
    if matches(pattern, text) or matches(pattern, text.partition(" with ")[0]):
        return "yes"
    return "unknown" if "*" in text and matches(text, pattern) else "no"


# Files whose license restricts redistribution


#: Entry of `forbid-licenses` that enables it, in lower case.
NOT_REDISTRIBUTABLE = "licenseref-not-redistributable"


def find_unread_terms(image: ImageSubject) -> Iterator[tuple[Distribution, str]]:
    """Yield distributions under their vendor's own terms that are not in the catalogue."""
    for item in image.inventory.distributions:
        terms = next((text for text in licenses(item) if "licenseref-" in text.lower()), None)
        if terms and not any(_is_of(row, item.owner) for row in _redistribution(image)):
            yield item, terms


def _withheld_files(image: ImageSubject) -> Iterator[tuple[str, str | None]]:
    """Programs, libraries, archives and device code; of those that stayed closed what the
    catalogue knows as tools, and libraries.
    """
    for binary in image.inventory.loadable:
        yield binary.path, binary.owner
    for artefact in image.inventory.artefacts:
        if artefact.container is None:
            yield artefact.path, artefact.owner
    for file in image.inventory.closed:
        name = file.path.rpartition("/")[2]
        if ".so" in name or image.catalogue.tools.find(name):
            yield file.path, file.owner


def _redistribution(image: ImageSubject) -> Sequence[Redistribution]:
    return [owned.entry for owned in image.catalogue.redistribution]


def _is_of(row: Redistribution, owner: str | None) -> bool:
    """Return True if an entry of the catalogue is about the license of a distribution."""
    name = (owner or "").partition("==")[0]
    return bool(name) and matches_any(row.distributions, name)


# BM608: licenses that the policy forbids or does not allow


def check_not_allowed(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution for its name, one for its license, one for each entry that is
    about its libraries, and one for what its license does not let everybody pass on.
    """
    yield from _listed_distributions(image)
    yield from _listed_libraries(image)
    yield from _listed_licenses(image)
    yield from _withheld(image)


def entries(lists: Mapping[str, tuple[Listed, ...]], backend: str) -> tuple[Listed, ...]:
    """Return the entries of a list for a backend, with those for all backends."""
    return (*lists.get("*", ()), *lists.get(backend, ()))


def license_lists(image: ImageSubject) -> tuple[Sequence[Listed], Sequence[Listed]]:
    """Licenses that are forbidden and those that are allowed."""
    forbidden = entries(image.policy.forbid.licenses, image.backend)
    return (
        [entry for entry in forbidden if entry.text.lower() != NOT_REDISTRIBUTABLE],
        entries(image.policy.allow.licenses, image.backend),
    )


def redistribution_asked(image: ImageSubject) -> Listed | None:
    """Return the entry that forbids files that may not be redistributed; None without one."""
    forbidden = entries(image.policy.forbid.licenses, image.backend)
    return next((entry for entry in forbidden if entry.text.lower() == NOT_REDISTRIBUTABLE), None)


def _listed_distributions(image: ImageSubject) -> Iterator[Finding]:
    forbidden = entries(image.policy.forbid.distributions, image.backend)
    allowed = entries(image.policy.allow.distributions, image.backend)
    for present in image.present if forbidden or allowed else ():
        entry = next((entry for entry in forbidden if _is_meant(entry, present, True)), None)
        if entry is not None:
            why = _forbidden(entry, "distributions")
        elif allowed and not any(_is_meant(entry, present, False) for entry in allowed):
            why = _missing_entries(allowed, "distributions")
        else:
            continue
        yield finding(
            "BM608",
            image,
            f"{present} {why}",
            owner=present.owner,
            path=present.path,
            chain=image.chain_to(present.name) or (str(present),),
            fix=_list_fix(f"take {present.name} out of what asks for it", "distributions"),
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


def _listed_libraries(image: ImageSubject) -> Iterator[Finding]:
    forbidden = entries(image.policy.forbid.libraries, image.backend)
    allowed = entries(image.policy.allow.libraries, image.backend)
    if not (forbidden or allowed):
        return
    by_reason: dict[tuple[str | None, str], list[str]] = {}
    for path, owner, soname in _listed_files(image):
        tried = dict.fromkeys((soname or _base_name(path), _base_name(path)))
        named = (e for name in tried for e in forbidden if matches(e.text, name))
        entry = next(named, None)
        if entry is not None:
            by_reason.setdefault((owner, _forbidden(entry, "libraries")), []).append(path)
        elif allowed and soname and owner and not matches_any([e.text for e in allowed], soname):
            by_reason.setdefault((owner, _missing_entries(allowed, "libraries")), []).append(path)
    for (owner, why), paths in by_reason.items():
        shown = listing(path.rpartition("/")[2] for path in paths)
        brings = f"{owner.replace('==', ' ')} brings {shown}, which" if owner else shown
        yield finding(
            "BM608",
            image,
            f"{brings} {why}",
            owner=owner,
            path=paths[0],
            fix=_list_fix("take out what brings it", "libraries"),
            identity=f"libraries {why.partition(' (')[0]}",
        )


def _listed_files(image: ImageSubject) -> Iterator[tuple[str, str | None, str]]:
    """Path, owner and soname of shared libraries; of one that stayed closed only the name."""
    for binary in image.inventory.loadable:
        if binary.elf.type == "dyn":
            yield binary.path, binary.owner, demangle(binary.elf.soname or "")
    for file in image.inventory.closed:
        if ".so" in file.path.rpartition("/")[2]:
            yield file.path, file.owner, ""


def _base_name(path: str) -> str:
    return demangle(path.rpartition("/")[2])


def _listed_licenses(image: ImageSubject) -> Iterator[Finding]:
    forbidden, allowed = license_lists(image)
    for item in image.inventory.distributions if forbidden or allowed else ():
        expressions = licenses(item)
        if not expressions or check_expressions(expressions, allowed, forbidden) != "no":
            continue
        entry = next((entry for entry in forbidden if names(expressions, entry)), None)
        why = _forbidden(entry, "licenses") if entry else _missing_entries(allowed, "licenses")
        yield finding(
            "BM608",
            image,
            f"{item.name} {item.version} has the license {listing(expressions)}, which {why}",
            owner=item.owner,
            path=item.path,
            fix=_list_fix(f"take {item.name} out of what asks for it", "licenses"),
            identity="licenses",
        )


def _withheld(image: ImageSubject) -> Iterator[Finding]:
    entry = redistribution_asked(image)
    if entry is None:
        return
    held: dict[tuple[str | None, str], list[str]] = {}
    for path, owner in _withheld_files(image):
        rows = _redistribution(image)
        covering = [row for row in rows if _is_of(row, owner)] or [
            row for row in rows if matches_any(row.paths, path)
        ]
        name = _base_name(path)
        if covering and not any(matches_any(row.names, name) for row in covering):
            held.setdefault((owner, covering[0].license), []).append(path)
    for (owner, license), paths in held.items():
        shown = listing(path.rpartition("/")[2] for path in paths)
        brings = f"{owner.replace('==', ' ')} brings {shown}" if owner else shown
        yield finding(
            "BM608",
            image,
            f"{brings}: the {license} does not list that as what may be passed on, and this "
            f"{_forbidden(entry, 'licenses')}",
            owner=owner,
            path=paths[0],
            fix=_list_fix("leave it in the stage that builds, and out of the image", "licenses"),
            identity="redistribution",
        )


def _forbidden(entry: Listed, kind: str) -> str:
    return f"is forbidden: `forbid-{kind}` under [policy] has `{entry.text}` ({entry.position})"


def _missing_entries(allowed: Sequence[Listed], kind: str) -> str:
    return f"is not allowed: `allow-{kind}` under [policy] does not list it ({allowed[0].position})"


def _list_fix(advice: str, kind: str) -> Fix:
    return Fix("remove", f"{advice}, or change the lists of {kind} under [policy]")


# BM609: a license cannot be matched with the policy's lists.
#
# As a warning it leaves the run undecided (`judge.acceptance.leaves_open`).


#: Characters of what metadata says, in a message.
_SHOWN = 80


def check_unknown_license(image: ImageSubject) -> Iterator[Finding]:
    """Yield a finding per distribution and question: its license, and its redistribution."""
    forbidden, allowed = license_lists(image)
    for item in image.inventory.distributions if forbidden or allowed else ():
        expressions = licenses(item)
        if expressions and check_expressions(expressions, allowed, forbidden) != "unknown":
            continue
        why = f"{_why_unknown(item, expressions)}, so no list of licenses under [policy] decides"
        yield _unknown_license(image, item, why, "")
    for item, terms in find_unread_terms(image) if redistribution_asked(image) else ():
        why = f"its license is {terms}, and no data file says what that lets everybody pass on"
        yield _unknown_license(image, item, why, "redistribution")


def _unknown_license(image: ImageSubject, item: Distribution, why: str, identity: str) -> Finding:
    return finding(
        "BM609",
        image,
        f"{item.name} {item.version}: {why}",
        owner=item.owner,
        path=item.path,
        fix=Fix(
            "waive",
            "read its license, and accept it with a [[waive]]",
            accept("BM609", distribution=item.name),
        ),
        identity=identity,
    )


def _why_unknown(item: Distribution, expressions: tuple[str, ...]) -> str:
    if len(expressions) > 1:
        return f"its classifiers name {listing(expressions)}, and not whether all of them hold"
    if expressions and "*" in expressions[0]:
        return f"its metadata names no single license but {expressions[0]}"
    if expressions:
        return f"its license is {expressions[0][:_SHOWN]}"
    said = item.license_expression or item.license
    if said:
        return f"its metadata has no SPDX license but {said[:_SHOWN]!r}"
    return "its metadata names no license"
