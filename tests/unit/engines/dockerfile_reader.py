"""An independent reading of a Dockerfile: which instructions a builder would see.

Follows the reference (https://docs.docker.com/reference/dockerfile/): a line that ends in a single
backslash continues, comment lines vanish, also inside a continued instruction.
"""

from __future__ import annotations

import re


def instructions(text: str) -> list[tuple[str, str]]:
    """Keyword and arguments of each instruction, continuations joined without their backslash."""
    found: list[tuple[str, str]] = []
    pending = ""
    for line in text.split("\n"):
        if line.lstrip().startswith("#") or (not pending and not line.strip()):
            continue
        continued = re.search(r"(^|[^\\])\\[ \t]*$", line)
        pending += line[: line.rindex("\\")] if continued else line
        if not continued:
            keyword, _, arguments = pending.strip().partition(" ")
            found.append((keyword, arguments.strip()))
            pending = ""
    assert not pending, "the last instruction does not end"
    return found


def pairs(arguments: str) -> dict[str, str]:
    """What ENV or LABEL arguments mean, with `$` expansion an error."""
    found = {}
    rest = arguments
    while rest := rest.strip():
        match = re.match(r'([^\s="$]+)="((?:[^"\\$]|\\.)*)"', rest)
        assert match is not None, rest
        found[match[1]] = re.sub(r"\\(.)", r"\1", match[2])
        rest = rest[match.end() :]
    return found
