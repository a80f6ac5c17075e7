"""What depends on one rule stands with the rules: nothing else knows a code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import buildmatrix
from buildmatrix.judge.model import FIX_KINDS
from buildmatrix.judge.registry import RULES, rule_of

SOURCE = Path(buildmatrix.__file__).parent
CODE = re.compile(r"BM\d{3}")
#: An example in the description of a key of the specification.
EXAMPLE = ("matrix", "BM401")


def test_no_module_beside_the_rules_holds_the_code_of_one() -> None:
    held = [
        (path.relative_to(SOURCE).as_posix(), node.value)
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "judge"
        if "BM" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if CODE.search(node.value)
    ]
    others = [(place, text) for place, text in held if (place.split("/")[0], text) != EXAMPLE]
    assert others == []


def test_a_code_of_a_later_version_is_a_rule_that_says_nothing() -> None:
    later = rule_of("BM777")
    assert (later.name, later.is_open, later.shared_fixes) == ("unknown-rule", False, ())


def test_what_is_shared_is_a_kind_of_fix() -> None:
    unknown = {rule.code: {*rule.shared_fixes} - {*FIX_KINDS} for rule in RULES}
    assert {code: kinds for code, kinds in unknown.items() if kinds} == {}
