"""Results of a fleet as one report, its JSON form, and its JSON Lines."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from fleet_cases import fleet, later, results, results_of

from buildmatrix.base.data import replace
from buildmatrix.base.text import safe
from buildmatrix.reports import fleet_documents
from buildmatrix.reports.fleet import (
    FleetFinding,
    FleetFit,
    FleetLayer,
    FleetReport,
    FleetResult,
)
from buildmatrix.reports.fleet_assembly import assemble
from buildmatrix.reports.formats import FLEET, Destination, document_schema, find_format

DIGEST = "sha256:" + "0" * 64
RESULT = FleetResult(
    repository="registry.example.com/a",
    names=("1.0",),
    digest=DIGEST,
    platform="linux/amd64",
    backend="cpu",
    places=("images.txt:1",),
    containers=2,
    state="failed",
)


def made(*results: FleetResult, **options) -> FleetReport:
    return assemble("images.txt", results, "2026-11-20", **options)


def text_of(report: FleetReport, name: str = "json") -> str:
    form = find_format(FLEET, name)
    return safe(form.render(report, Destination()), form.syntax)


# One report, however results came


def test_a_report_is_the_same_in_whatever_order_results_came() -> None:
    every = list(results(300))
    report = assemble("x", every, "2026-11-20")
    shuffled = random.Random(1).sample(every, len(every))
    # Some come twice, as from two workers that judged the same image at once.
    again = assemble("x", [*shuffled, *shuffled[:50]], "2026-11-20")
    assert again == report
    assert text_of(again) == text_of(report)
    assert len(report.results) == 300


def test_one_image_that_is_named_twice_is_one_with_all_its_places() -> None:
    other = replace(
        RESULT,
        names=("1.0", "latest"),
        places=("pod a/b",),
        node_classes=("h100",),
        containers=3,
        owner="search",
        fits=(FleetFit(node="h100", state="refused"),),
    )
    (result,) = made(RESULT, other, RESULT).results
    assert result == made(other, RESULT).results[0]
    assert result.names == ("1.0", "latest")
    assert result.places == ("images.txt:1", "pod a/b")
    assert (result.containers, result.owner, result.node_classes) == (5, "search", ("h100",))
    assert [fit.node for fit in result.fits] == ["h100"]


def test_of_two_answers_about_a_node_class_the_worse_counts() -> None:
    fits = [(FleetFit(node="a", state=state),) for state in ("ok", "refused", "undecided")]
    (result,) = made(*(replace(RESULT, fits=fit, places=(fit[0].state,)) for fit in fits)).results
    assert [fit.state for fit in result.fits] == ["refused"]


def test_what_was_judged_after_a_failure_is_judged() -> None:
    failed = replace(RESULT, state="undecided", error="the registry is down")
    assert made(failed, RESULT).results == (RESULT,)
    assert made(RESULT, failed).results == (RESULT,)


def test_a_name_that_was_resolved_later_is_no_second_image() -> None:
    lost = replace(RESULT, digest="", state="undecided", error="no answer")
    assert made(lost, RESULT).results == (RESULT,)
    # Another tag is another image, and stays undecided.
    other = replace(lost, names=("2.0",))
    assert set(made(lost, RESULT, other).results) == {RESULT, other}


def test_two_backends_and_two_locks_of_one_repository_are_two_results() -> None:
    lock = replace(RESULT, kind="lock", names=("a.lock",), digest="0" * 40)
    every = (RESULT, replace(RESULT, backend="rocm"), lock, replace(lock, names=("b.lock",)))
    assert set(made(*every).results) == set(every)


def test_no_secret_of_an_address_is_in_a_report_nor_in_a_line() -> None:
    url = "https://user:SECRET@host.example/x?token=SECRET"
    finding = FleetFinding(rule="BM101", severity="error", message=url, fix=url, path=url)
    result = replace(
        RESULT, error=url, places=(url,), owner=url, findings=(finding,), names=(url,),
        fits=(FleetFit(node="a", state="refused", reasons=(url,)),),
        layers=(FleetLayer(digest=url, size=1, installed=1),),
    )  # fmt: skip
    report = made(result, missing=[url], notes=[url])
    for text in (
        fleet_documents.line(result),
        repr(report),
        text_of(report),
        text_of(report, "jsonl"),
    ):
        assert "SECRET" not in text


# JSON


def test_a_document_is_read_as_the_report_that_was_written() -> None:
    for report in (fleet(120), later(120), made()):
        text = text_of(report)
        assert fleet_documents.parse(text.encode()) == report
        assert text_of(fleet_documents.parse(text.encode())) == text


@pytest.mark.parametrize("report", [fleet(120), later(120), made()])
def test_a_document_fits_its_schema(report: FleetReport) -> None:
    schema = document_schema("fleet")
    jsonschema.Draft202012Validator.check_schema(schema)
    value = json.loads(text_of(report))
    jsonschema.Draft202012Validator(schema).validate(value)
    for damaged in ({**value, "more": 1}, {k: v for k, v in value.items() if k != "work"}):
        assert not jsonschema.Draft202012Validator(schema).is_valid(damaged)


def test_what_images_share_is_in_a_document_once() -> None:
    report = fleet(400)
    value = json.loads(text_of(report))
    held = sum(len(result["layers"]) for result in value["results"])
    assert held > 3 * len(value["layers"])
    assert len({json.dumps(layer) for layer in value["layers"]}) == len(value["layers"])
    assert len(text_of(report)) < len(text_of(report, "jsonl")) * 0.7


@pytest.mark.parametrize("number", [-1, 10**9])
def test_a_result_that_points_nowhere_makes_no_report(number: int) -> None:
    value = json.loads(text_of(made(RESULT)))
    value["results"][0]["layers"] = [number]
    with pytest.raises(ValueError, match="an entry that its table does not have"):
        fleet_documents.parse(json.dumps(value).encode())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "buildmatrix/report/1"}'])
def test_what_is_no_report_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        fleet_documents.parse(text.encode())


# JSON Lines


def test_lines_are_read_as_they_were_written() -> None:
    report = fleet(120)
    text = text_of(report, "jsonl")
    assert text == fleet_documents.render_lines(report)
    written = results_of(text.encode().splitlines())
    assert written == report.results
    assert assemble(report.subject, written, "2026-11-20").results == report.results


def test_a_line_fits_its_schema_and_says_first_what_it_is() -> None:
    validator = jsonschema.Draft202012Validator(document_schema("fleet-result"))
    for text in fleet_documents.render_lines(fleet(60)).splitlines():
        assert text.startswith('{"schema": "buildmatrix/fleet-result/1"')
        validator.validate(json.loads(text))


def test_what_is_hostile_stays_on_its_line() -> None:
    text = "a\nb\r\x85\u2028c\udc80 ::error:: ##[x] \x1b[2J"
    line = fleet_documents.line(replace(RESULT, names=(text,)))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    (read,) = results_of([line.encode()])
    assert read.names == (text.replace("\udc80", "?"),)
    assert fleet_documents.parse(text_of(made(read)).encode()).results == (read,)
