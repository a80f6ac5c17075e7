"""A report in which every text is hostile, in every format: as a file and as what is printed."""

from __future__ import annotations

import json
import re
import unicodedata
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from buildmatrix.base.data import replace
from buildmatrix.base.text import JSON, each_text, printable
from buildmatrix.catalogue.model import Evidence
from buildmatrix.cli import group
from buildmatrix.cli.output import FORMATS, write_document
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge.model import (
    Advisory,
    AuditTotals,
    Finding,
    Fix,
    TargetResult,
    Trial,
    Verdict,
)
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports.formats import RUN, find_format
from buildmatrix.reports.run import FixesTried, Report, Saved, assemble

pytestmark = pytest.mark.usefixtures("a_day")

SECRET = "http://user:SECRET@host/x.whl?token=SECRET"
SNIPPETS = (
    "::stop-commands::x", "\n::error::x", "\nFORGED", "\r\nFORGED", "##vso[task.x]", "##[group]",
    "\x1b[2J", "\x85FORGED", "\u2028FORGED", "\u202e", "\x9b31m", "\x00", "\udc80", "\U000e0041",
    "<script>alert(1)</script>", "@everyone", "# heading", "&commat;everyone", "]]>", "name ",
    "](http://x)", "|", "`", SECRET,
)  # fmt: skip
hostile = st.lists(st.sampled_from(SNIPPETS), min_size=1, max_size=4).map("".join)
OBEYED = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)


def report(text: str, *, audited: bool = False) -> Report:
    evidence = Evidence(
        kind="needed",
        vendor=text,
        backend=text,
        path=text,
        detail=text,
        role="runtime",
        confidence="high",
        offset=0,
        size=1,
        distribution=text,
    )
    fix = Fix("waive", text, text, tried=Trial(False, text))
    finding = Finding(
        rule="BM401",
        name=text,
        severity="error",
        target=text,
        backend="cpu",
        vendor=text,
        message=text,
        distribution=text,
        version=text,
        path=text,
        evidence=(evidence,),
        chain=(text, text),
        fix=fix,
        waived=None,
        fingerprint=text,
    )
    target = TargetResult(
        text, "cpu", {"lock": "failed", "build": "failed"}, image=text, digest=text, size=1,
        log=text, error=text,
        smoke_not_run=(text,), audit=AuditTotals(1, 1, 1, 1) if audited else None,
        bases={text: text},
    )  # fmt: skip
    made = assemble(
        text,
        "2026-01-01",
        targets=[target],
        findings=[
            finding,
            replace(finding, waived=text, fingerprint="1"),
            replace(finding, rule="BM902", severity="warning", target="", fingerprint="2"),
            replace(
                finding,
                rule="BM801",
                advisories=(Advisory(text, (text,), (text,), text),),
                fingerprint="3",
            ),
        ],
        verdicts=[Verdict(text, text, "cpu", "broken", text, vendors=(text,), open=text)],
        inventories=[Inventory(unread=(Unread(text, text),))],
    )
    fixes = FixesTried(f"+{printable(text)}\n", (text,), True, (Saved(text, 1, 1),), (text,))
    return replace(made, fixes=fixes) if audited else made


def is_hidden(char: str) -> bool:
    return char not in "\n\t" and (
        unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(char) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI")
    )


class Tags(HTMLParser):
    """The names of all elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.names.append(tag)


@pytest.mark.parametrize("format_", FORMATS)
@given(text=hostile, audited=st.booleans())
@example(text="".join(SNIPPETS), audited=True)
@example(text="".join(SNIPPETS), audited=False)
@example(text=f"{SECRET}<script>alert(1)</script>", audited=False)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_format_holds_what_is_obeyed(
    text: str, audited: bool, format_: str, tmp_path, capsys
) -> None:
    capsys.readouterr()
    write_document(RUN, report(text, audited=audited), [(format_, None)], None)
    printed = capsys.readouterr().out
    path = tmp_path / "report"
    write_document(RUN, report(text, audited=audited), [(format_, path)], None)
    assert path.read_text(encoding="utf-8").rstrip() == printed.rstrip()
    assert not OBEYED.search(printed)
    assert not any(map(is_hidden, set(printed)))
    # Lines of a page's source are no lines of text.
    if format_ != "html":
        assert not any(line.startswith("FORGED") for line in printed.splitlines())
    assert "SECRET" not in printed
    if find_format(RUN, format_).syntax is JSON:
        json.loads(printed)
    if format_ == "junit":
        ET.fromstring(printed)
    if format_ == "html":
        tags = Tags()
        tags.feed(printed)
        assert tags.names.count("script") == 1
    if format_ == "markdown":
        prose = re.sub(r"(?ms)^(`{3,})diff$.*?^\1$", "", printed)
        assert "<script" not in prose.replace(r"\<script", "")
        # Behind a letter, as in an address of mail, it calls nobody.
        assert not re.search(r"(?<!\w)@everyone", prose.replace("\\&", ""))
        assert not re.search(r"(?m)^#+ heading", prose)


@pytest.mark.parametrize("format_", ["table", "markdown", "sarif", "junit", "html"])
def test_the_name_in_a_foreign_report_is_that_of_the_rule(format_: str, tmp_path) -> None:
    made = report("name")
    foreign = replace(
        made, findings=tuple(replace(one, name="<script>\x1b @all") for one in made.findings)
    )
    path = tmp_path / "foreign.json"
    path.write_text(as_json.render(foreign))
    result = CliRunner().invoke(group, ["report", str(path), "--format", format_])
    assert "foreign-device-code" in result.output or format_ == "sarif"
    assert "@all" not in result.output
    assert "@<" not in result.output


def test_a_rule_of_a_later_version_has_no_name_of_the_report_s(tmp_path) -> None:
    path = tmp_path / "later.json"
    made = report("name")
    later = replace(made.findings[0], rule="BM799", name="# x")
    path.write_text(as_json.render(replace(made, findings=(later,))))
    for format_ in FORMATS:
        result = CliRunner().invoke(group, ["report", str(path), "--format", format_])
        assert result.exit_code != 70
        assert "# x" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)


def test_what_is_no_code_of_a_rule_makes_no_report(tmp_path) -> None:
    path = tmp_path / "no.json"
    text = as_json.render(report("name")).replace('"BM401"', '"::x\\u001b"')
    path.write_text(text)
    result = CliRunner().invoke(group, ["report", str(path)], standalone_mode=False)
    assert "is not a rule code" in str(result.exception)
    assert "\x1b" not in str(result.exception)


def test_what_is_read_again_is_what_was_found(tmp_path, capsys) -> None:
    made = report("\x85\u202e##[x] ::y")
    write_document(RUN, made, [("json", None)], None)
    document = json.loads(capsys.readouterr().out)
    assert document["unread"][0]["path"] == "\x85\u202e##[x] ::y"
    assert each_text(made, str) == made
