"""Known vulnerabilities as OpenVEX, held by its schema."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from bills import WORST, bill, hostile, hostile_bill, part, target, vulnerable
from hypothesis import example, given, settings

from buildmatrix.api.result import CommandResult
from buildmatrix.cli.output import write_report
from buildmatrix.errors import NoDocumentError
from buildmatrix.reports.formats import RUN, Destination, by_name
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import StagedImage

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "openvex-0.2.0.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
WHEN = datetime(2026, 11, 22, 23, 5, 6, tzinfo=UTC)
DIGEST = "sha256:" + "ab" * 32


def document(one: Report) -> dict[str, Any]:
    text = by_name(RUN, "openvex").render(one, Destination(time=WHEN))
    form: dict[str, Any] = json.loads(text)
    VALIDATOR.validate(form)
    return form


def only(one: Report) -> dict[str, Any]:
    (statement,) = document(one)["statements"]
    return statement


def test_what_is_locked_and_not_in_the_image_is_not_affected() -> None:
    statement = only(bill(vulnerable()))
    assert statement["status"] == "not_affected"
    assert statement["justification"] == "component_not_present"
    assert statement["impact_statement"] == (
        "jinja2 3.1.2 is locked for cpu-py311-server, and its image does not hold it"
    )
    assert statement["vulnerability"] == {
        "name": "CVE-2024-22195",
        "aliases": ["GHSA-h5c8-rqwp-cp95"],
        "description": "xmlattr filter",
    }


@pytest.mark.parametrize(
    "where",
    [
        target(part("jinja2")),
        # Nobody looked into the image.
        replace(target(), composition=None),
        target(gates={"lock": "passed", "scan": "not-run"}),
        target(gates={"lock": "passed", "scan": "undecided"}),
    ],
)
def test_what_is_there_or_was_not_looked_for_is_affected(where) -> None:
    statement = only(bill(vulnerable(), targets=(where,)))
    assert statement["status"] == "affected"
    assert statement["action_statement"].startswith("write `replace")


def test_a_waiver_is_an_action_and_proves_nothing() -> None:
    one = vulnerable(waived="no templates of users (team, until 2027-01-31)")
    statement = only(bill(one, targets=(target(part("jinja2")),)))
    assert statement["status"] == "affected"
    assert statement["action_statement"] == f"accepted: {one.waived}"


def test_a_waiver_can_begin_with_a_justification_of_openvex() -> None:
    here = (target(part("jinja2")),)
    reason = "vulnerable_code_not_in_execute_path: we render no templates (team)"
    statement = only(bill(vulnerable(waived=reason), targets=here))
    assert (statement["status"], statement["justification"], statement["impact_statement"]) == (
        "not_affected",
        "vulnerable_code_not_in_execute_path",
        "we render no templates (team)",
    )
    bare = only(bill(vulnerable(waived="component_not_present"), targets=here))
    assert bare["impact_statement"] == "component_not_present"
    other = only(bill(vulnerable(waived="component_not_presentable"), targets=here))
    assert other["status"] == "affected"


def test_products_are_images_by_digest_with_the_distribution_in_them() -> None:
    staged = StagedImage("ghcr.io/acme/Inferno", DIGEST, ("latest",))
    where = target(part("jinja2"), staged=staged)
    (product,) = only(bill(vulnerable(), targets=(where,)))["products"]
    image = f"pkg:oci/inferno@sha256%3A{'ab' * 32}?repository_url=ghcr.io/acme/Inferno"
    assert product["@id"] == image
    assert product["subcomponents"] == [
        {"@id": "pkg:pypi/jinja2@3.1.2", "identifiers": {"purl": "pkg:pypi/jinja2@3.1.2"}}
    ]
    local = target(part("jinja2"), image="localhost:5000/a/b:1.0", digest=DIGEST)
    (product,) = only(bill(vulnerable(), targets=(local,)))["products"]
    assert product["@id"].endswith("?repository_url=localhost%3A5000/a/b")


def test_targets_with_one_answer_are_products_of_one_statement() -> None:
    targets = tuple(
        target(*parts, id=id, image=None)
        for id, parts in (("a", [part("jinja2")]), ("b", [part("jinja2")]), ("c", []))
    )
    one = vulnerable(also=("b", "c"))
    affected, absent = document(bill(replace(one, target="a"), targets=targets))["statements"]
    assert (affected["status"], len(affected["products"])) == ("affected", 2)
    assert (absent["status"], len(absent["products"])) == ("not_affected", 1)


def test_the_document_is_named_by_what_it_says_and_has_its_time() -> None:
    here = target(part("jinja2"))
    first, again = (document(bill(vulnerable(), targets=(here,))) for _ in range(2))
    assert first == again
    assert document(bill(vulnerable(waived="x"), targets=(here,)))["@id"] != first["@id"]
    assert first["timestamp"] == "2026-11-22T23:05:06Z"
    assert (first["author"], first["version"]) == ("buildmatrix", 1)


def test_nothing_known_is_no_statement() -> None:
    with pytest.raises(NoDocumentError, match="no document without a statement"):
        by_name(RUN, "openvex").render(bill(), Destination(time=WHEN))
    with pytest.raises(NoDocumentError):
        CommandResult(bill(), 0, RUN).render("openvex")


def test_a_command_says_that_nothing_is_written_and_goes_on(tmp_path: Path, capsys) -> None:
    path, page, link = tmp_path / "vex.json", tmp_path / "page.html", tmp_path / "link.json"
    link.symlink_to(page)
    write_report(bill(vulnerable()), [("openvex", path)], None)
    assert path.is_file()
    capsys.readouterr()
    # What an earlier run found is true no more.
    write_report(bill(), [("openvex", path), ("openvex", path), ("html", page)], None)
    text = capsys.readouterr()
    assert not path.exists() and page.is_file() and text.out == ""
    assert f"{path} is removed: OpenVEX has no document without a statement" in text.err
    assert f"{path} is not written: " in text.err
    write_report(bill(), [("openvex", link)], None)
    assert link.is_symlink() and page.is_file()
    write_report(bill(), [("openvex", None)], None)
    text = capsys.readouterr()
    assert text.out == "" and "buildmatrix: nothing is written: OpenVEX" in text.err


@given(hostile)
@example("")
@example(WORST)
@settings(max_examples=25, deadline=None)
def test_any_text_fits(text: str) -> None:
    document(hostile_bill(text))
