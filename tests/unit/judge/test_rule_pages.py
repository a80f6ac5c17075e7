"""The table of rules, their pages, and BM903."""

from __future__ import annotations

from typing import get_args

import pytest

from buildmatrix.base.errors import UsageError
from buildmatrix.judge import judging
from buildmatrix.judge.locks import check_generated_file_out_of_date
from buildmatrix.judge.registry import BY_CODE, RULES, Scope, rule_page

SCOPES = get_args(Scope)
SECTIONS = ("Why", "How it is decided", "How to fix it", "How to waive it", "What stays quiet")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_has_a_page_with_all_sections(rule) -> None:
    page = rule_page(rule.code)
    assert page.startswith(f"# {rule.code}: {rule.name}\n")
    assert f"Severity: {rule.severity}." in page
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == list(SECTIONS)


def test_codes_and_names_are_unique_and_sorted() -> None:
    assert list(BY_CODE) == sorted(rule.code for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_what_rules_look_at_is_what_they_are_given() -> None:
    rules = {scope: [rule.code for rule in RULES if rule.scope == scope] for scope in SCOPES}
    assert len(judging.OF_DISTRIBUTIONS) == len(rules["lock"])
    assert len(judging.OF_WHEELS) == len(rules["wheels"])
    assert len(judging.OF_IMAGES) == len(rules["files"]) + len(rules["image"])
    assert set(judging.OF_FILES) < set(judging.OF_IMAGES)
    # What no list runs is called by name: what is asked of a service, and what is about the run.
    assert rules["advisories"] + rules["run"] == ["BM801", "BM802", "BM901", "BM903"]


def test_a_code_may_be_written_in_lower_case() -> None:
    assert rule_page("bm101") == rule_page("BM101")


@pytest.mark.parametrize("code", ["BM999", "../README", ""])
def test_an_unknown_code_is_a_usage_error_that_lists_the_known_ones(code: str) -> None:
    with pytest.raises(UsageError, match="BM101"):
        rule_page(code)


def test_each_stale_generated_file_is_a_finding_that_says_what_to_run() -> None:
    findings = check_generated_file_out_of_date(["b/Dockerfile", "a/Dockerfile"])
    assert [one.path for one in findings] == ["a/Dockerfile", "b/Dockerfile"]
    assert findings[0].fix is not None and "buildmatrix generate" in findings[0].fix.text
    assert check_generated_file_out_of_date([]) == ()
