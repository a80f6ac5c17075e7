"""The JSON form of a document, its schema, and what is read back."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_report_formats import finding, report
from test_saved_difference import compared

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.judge.model import Advisory, Fix, Gate, GateState, SpecChange, TargetResult, Trial
from buildmatrix.reports import saved
from buildmatrix.reports.diff import (
    ArchitectureChange,
    ChangedFinding,
    ComparedSide,
    Comparison,
    DistributionChange,
    DistributionChanges,
    Drift,
    Drifts,
    ExplainedDrift,
    FindingChanges,
    LayerChange,
    LayersChange,
    LibraryChange,
    Pinned,
    TargetChanges,
    VariableChange,
    VendorChange,
    VerdictChange,
)
from buildmatrix.reports.formats import document_schema
from buildmatrix.reports.json_form import dumps, parse, plain, render
from buildmatrix.reports.run import FixesTried, Report, Saved

END = ComparedSide("a", "image", "", ("cpu",), 1, "debian:13", None, 0)
FOUND = finding()


def whole_report() -> Report:
    fix = Fix("replace", "a text", "a patch", (SpecChange("drop", "a"),), Trial(True, "", -1, 2))
    base = compared()
    told = replace(FOUND, fix=fix, advisories=(Advisory("CVE-2026-1", ("a",), ("2",), "b"),))
    fixes = FixesTried("a patch", ("base.in",), True, (Saved("cpu", -1, 2),), ("a note",))
    return replace(base, findings=(told,), fixes=fixes)


def whole_comparison() -> Comparison:
    return Comparison(
        END,
        END,
        TargetChanges(("a",), ("b",)),
        DistributionChanges(1, (DistributionChange("added", "a", "", (), ("1",)),)),
        (LibraryChange("changed", "a", "nvidia", "cuda", "math", ("1",), ("2",), "soname"),),
        (ArchitectureChange(None, "nvidia", ("sm_90",), ()),),
        (VendorChange("nvidia", "cuda", 1, 2),),
        LayersChange(1, 2, 1, 0, 0, (LayerChange("added", 1, "RUN a", None, 5),)),
        (VariableChange("added", "A", None, "1"),),
        FindingChanges(1, (FOUND,), (FOUND,), (ChangedFinding(FOUND, FOUND),)),
        (VerdictChange("a", "cpu", None, "bloat", "because"),),
        ("a note",),
    )


def whole_drifts() -> Drifts:
    pinned = (Pinned("1", None, ("cpu",), ("base.in:1",)),)
    return Drifts(
        ("cpu",),
        1,
        (Drift("a", pinned),),
        (ExplainedDrift("b", pinned, "because"),),
        ("x",),
        ("y",),
    )


DOCUMENTS = (
    (whole_report(), document_schema("report")),
    (whole_comparison(), document_schema("diff")),
    (whole_drifts(), document_schema("drift")),
)


def objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the objects of a document are."""
    if isinstance(value, dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from objects(item, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@pytest.mark.parametrize(("document", "schema"), DOCUMENTS)
def test_a_schema_takes_its_document_and_none_with_a_key_more_or_less(
    document: object, schema: Any
) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    value = json.loads(render(document))
    validator.validate(value)
    for path in objects(value):
        # The keys of these are names of vendors and of images.
        if path and path[-1] in ("architectures", "bases"):
            continue
        more = copy.deepcopy(value)
        at(more, path)["later"] = 1
        assert not validator.is_valid(more), path
        for key in at(value, path):
            less = copy.deepcopy(value)
            del at(less, path)[key]
            assert validator.is_valid(less) == (key in ("fixes", "diff")), (path, key)


@pytest.mark.parametrize(("document", "schema"), DOCUMENTS)
def test_numbers_are_not_negative_unless_they_are_differences(
    document: object, schema: Any
) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    value = json.loads(render(document))
    signed = ("saved_download", "saved_installed")
    for path in objects(value):
        for key, item in at(value, path).items():
            if type(item) is int:
                less = copy.deepcopy(value)
                at(less, path)[key] = -1
                is_signed = key in signed or "saved" in path
                assert validator.is_valid(less) == is_signed, (path, key)


def test_what_stays_in_memory_is_in_no_document() -> None:
    assert "by_others" not in plain(report())["distributions"][0]


def test_half_a_surrogate_pair_in_a_path_is_written() -> None:
    assert "\udc80" in render(finding(path="lib\udc80.so"))


#: Floats of documents are seconds, rounded to milliseconds.
_SECONDS = st.integers(0, 10**9).map(lambda number: number / 1000)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _SECONDS | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,  # More takes long to make, and nests no deeper.
)


@given(_VALUES)
@settings(max_examples=300)
def test_documents_are_written_as_the_standard_library_does(value: Any) -> None:
    assert dumps(value) == json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("document", [document for document, _ in DOCUMENTS])
def test_a_document_that_is_read_is_the_one_that_was_written(document: Any) -> None:
    text = render(document)
    assert render(parse(text.encode(), type(document))) == text


def test_a_report_of_an_earlier_version_is_read_without_what_came_later() -> None:
    value = json.loads(render(report(finding())))
    for key in ("left_out", "audit", "push", "bases", "smoke_not_run"):
        del value["targets"][0][key]
    for key in ("depth", "download", "open", "certain", "may_be", "sha256"):
        del value["distributions"][0][key]
    for key in ("at_least", "also", "advisories"):
        del value["findings"][0][key]
    del value["findings"][0]["evidence"][0]["architectures"]
    del value["findings"][0]["fix"]["tried"], value["findings"][0]["fix"]["changes"]
    assert saved.parse(json.dumps(value).encode(), "a.json") == report(finding())


@pytest.mark.parametrize(
    "key", ["schema", "tool", "subject", "targets", "distributions", "findings", "unread", "stats"]
)
def test_what_every_report_has_is_asked_for(key: str) -> None:
    value = json.loads(render(report(finding())))
    del value[key]
    with pytest.raises(UsageError, match=f"is not a report of buildmatrix .it has no `{key}`"):
        saved.parse(json.dumps(value).encode(), "a.json")


def test_a_finding_has_the_name_of_its_rule_whatever_the_file_says() -> None:
    text = render(compared()).replace("foreign-device-code", "another-name")
    read = saved.parse(text.encode(), "a.json")
    assert read.diff is not None
    changes = read.diff.targets[0].findings
    assert changes is not None
    raised = (now for _, now in changes.raised)
    names = {one.name for one in (*read.findings, *raised, *changes.gone)}
    assert names == {"foreign-device-code"}


def test_gates_and_bases_are_in_one_order() -> None:
    gates: dict[Gate, GateState] = {"scan": "failed", "lock": "passed"}
    value = plain(TargetResult("a", "cpu", gates, bases={"b": "2", "a": "1"}))
    assert list(value["gates"]) == ["lock", "build", "scan", "smoke"]
    assert list(value["bases"]) == ["a", "b"]
