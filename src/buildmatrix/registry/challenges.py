"""Parser of the header `WWW-Authenticate` (RFC 9110, 11.6.1).

Registries name their token server in it:
https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Characters of the header.
_MAX_LENGTH = 16 << 10
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SCHEME = re.compile(rf"[\s,]*({_WORD})(?=\s|,|$)")
_PARAMETER = re.compile(rf'[\s,]*({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Challenge:
    """An authentication scheme and its parameters."""

    #: In lower case: `basic`, `bearer`.
    scheme: str
    #: Names in lower case.
    parameters: Mapping[str, str]


def parse_challenges(header: str) -> Iterator[Challenge]:
    """Yield the challenges of a header, up to the first syntax error."""
    header = header[:_MAX_LENGTH]
    place = 0
    while match := _SCHEME.match(header, place):
        place = match.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(header, place):
            place = parameter.end()
            quoted = re.sub(r"\\(.)", r"\1", parameter[2] or "")
            parameters.setdefault(parameter[1].lower(), parameter[3] or quoted)
        yield Challenge(match[1].lower(), parameters)
