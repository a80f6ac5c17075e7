"""The license of a distribution, as its metadata has it, against lists of licenses.

SPDX license expressions (SPDX 2.3, annex D; PEP 639). Metadata from before PEP 639 says less: the
header `License` is free text, and some classifiers name a family of licenses. A family is held as a
pattern (`BSD-*`), and a list that names a part of it does not decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from buildmatrix.catalogue.names import matches
from buildmatrix.inventory.model import Distribution
from buildmatrix.spec.model import Listed

Answer = Literal["yes", "unknown", "no"]
_RANK: dict[Answer, int] = {"no": 0, "unknown": 1, "yes": 2}

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
#: Words of an expression, and how deep its parentheses may nest.
_WORDS = re.compile(r"[()]|[^\s()]+")
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


def accepted(
    expressions: Sequence[str], allowed: Sequence[Listed], forbidden: Sequence[Listed]
) -> Answer:
    """Return the answer of lists for a license. One of the alternatives (`OR`) is enough."""
    answers = {_expression(text, allowed, forbidden) for text in expressions}
    return answers.pop() if len(answers) == 1 else "unknown"


def names(expressions: Sequence[str], entry: Listed) -> bool:
    """Return True if an entry of a list applies to some license of an expression."""
    leaves = [leaf for text in expressions for leaf in re.split(r" AND | OR ", text)]
    return any(_fits(leaf.strip("() "), entry) == "yes" for leaf in leaves)


def _canonical(text: str) -> tuple[str, ...]:
    try:
        return (canonicalize_license_expression(text),)
    except (InvalidLicenseExpression, ValueError, SyntaxError, RecursionError, MemoryError):
        return ()


def _expression(text: str, allowed: Sequence[Listed], forbidden: Sequence[Listed]) -> Answer:
    words = [*_WORDS.findall(text), ""]
    place = 0

    def alternatives(depth: int) -> Answer:
        return max(joined("OR", conjunction, depth), key=_RANK.__getitem__)

    def conjunction(depth: int) -> Answer:
        return min(joined("AND", single, depth), key=_RANK.__getitem__)

    def joined(word: str, part: Callable[[int], Answer], depth: int) -> Iterator[Answer]:
        nonlocal place
        yield part(depth)
        while words[place] == word:
            place += 1
            yield part(depth)

    def single(depth: int) -> Answer:
        nonlocal place
        word = words[place]
        place += 1
        if word == "(":
            if depth == _DEEPEST:
                raise RecursionError
            answer = alternatives(depth + 1)
            place += 1
            return answer
        if words[place] == "WITH":
            word = f"{word} WITH {words[place + 1]}"
            place += 2
        return _leaf(word, allowed, forbidden)

    try:
        return alternatives(0)
    except (RecursionError, IndexError):
        return "unknown"


def _leaf(leaf: str, allowed: Sequence[Listed], forbidden: Sequence[Listed]) -> Answer:
    refused = _best(leaf, forbidden)
    if refused == "yes":
        return "no"
    let_in = _best(leaf, allowed) if allowed else "yes"
    return "unknown" if refused == "unknown" and let_in == "yes" else let_in


def _best(leaf: str, entries: Sequence[Listed]) -> Answer:
    answers = [_fits(leaf, entry) for entry in entries]
    return max(answers, key=_RANK.__getitem__, default="no")


def _fits(leaf: str, entry: Listed) -> Answer:
    """Return the answer of an entry for a license; it applies with any exception, too."""
    text, pattern = leaf.lower(), entry.text.lower()
    if matches(pattern, text) or matches(pattern, text.partition(" with ")[0]):
        return "yes"
    return "unknown" if "*" in text and matches(text, pattern) else "no"
