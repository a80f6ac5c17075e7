"""What an image asks of its node, in the words of libnvidia-container.

Source: NVIDIA/libnvidia-container, src/cli/dsl.c and configure.c. Blanks part alternatives, commas
what all must hold; `cuda`, `driver` and `arch` are compared as versions, `brand` as a text without
upper and lower case. What a condition asks of something that is not known may be met or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from buildmatrix.spec.version_range import Numbers, compare, numbers

#: The order in which the parser tries them; it takes the first that begins with what is written.
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_PART = re.compile(r"([^<>=!]+)([<>=!]+)(.+)", re.DOTALL)
_VERSION = re.compile(r"[0-9.]+")
#: Characters that are evaluated; those of NVIDIA's images have 4000.
LONGEST = 32_768


class InvalidConditionError(ValueError):
    """A condition that the container runtime cannot read, and so does not start the container."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a node; None and nothing for what is not."""

    versions: Mapping[str, Numbers | None] = field(default_factory=dict)
    #: What the driver may call its devices.
    brands: frozenset[str] = frozenset()


def met(condition: str, node: NodeFacts) -> bool | None:
    """Whether a node meets a condition; None where that is not known.

    Raises `InvalidConditionError`. What stands behind the alternative that holds is not read.
    """
    if len(condition) > LONGEST:
        raise InvalidConditionError(f"it has more than {LONGEST} characters")
    alternatives = [text for text in condition.split(" ") if text]
    is_open = False
    for alternative in alternatives:
        outcome = _all_met(alternative, node)
        if outcome is True:
            return True
        is_open |= outcome is None
    if not alternatives:
        return True
    return None if is_open else False


def _all_met(alternative: str, node: NodeFacts) -> bool | None:
    outcome: bool | None = True
    for text in filter(None, alternative.split(",")):
        part = _met(text, node)
        if part is False:
            return False
        outcome = None if part is None else outcome
    return outcome


def _met(text: str, node: NodeFacts) -> bool | None:
    match = _PART.fullmatch(text)
    operator = match and next((item for item in _OPERATORS if item.startswith(match[2])), None)
    if match is None or operator is None:
        raise InvalidConditionError(f"`{text[:80]}` is no condition")
    name, value = match[1].lower(), match[3]
    if name == "brand":
        if operator not in ("=", "!="):
            raise InvalidConditionError(f"`{text[:80]}` compares names")
        outcomes = {(brand == value.lower()) == (operator == "=") for brand in node.brands}
        return outcomes.pop() if len(outcomes) == 1 else None
    if name not in ("cuda", "driver", "arch") or not _VERSION.fullmatch(value):
        raise InvalidConditionError(f"`{text[:80]}` is no condition")
    present, wanted = node.versions.get(name), numbers(value)
    if wanted is None:
        raise InvalidConditionError(f"`{text[:80]}` has no version")
    if present is None:
        return None
    order = compare(present, wanted)
    return {
        "=": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[operator]
