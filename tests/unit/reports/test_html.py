"""The report as an HTML page; tests/integration/test_html_page.py opens it in a browser."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge.model import Advisory, AuditTotals, Fix
from buildmatrix.reports import run_html


class Page(HTMLParser):
    """Elements and their attributes, and the text outside of style and script."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, str] = {}
        self.text = ""
        self._inside = ""
        self.feed(source)

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("style", "script"):
            self.raw[self._inside] = self.raw.get(self._inside, "") + data
        else:
            self.text += data


def test_all_is_in_the_page() -> None:
    flaw = Advisory("CVE-2024-22195", ("GHSA-h5c8-rqwp-cp95",), ("3.1.3",), "xmlattr filter")
    text = Page(
        run_html.render(
            report(
                replace(finding(), advisories=(flaw,)),
                finding(severity="note", message="a note", fingerprint="1" * 32),
                finding(waived="accepted (team)", fingerprint="2" * 32),
                targets=(result(), replace(result("broken", build="failed"), error="no space")),
                inventories=[Inventory(unread=(Unread("opt/a.so", "it ends early"),))],
            )
        )
    ).text
    for expected in (
        "2 targets, 1 failed, 1 not read",
        "errors (1)",
        "notes (1)",
        "accepted (1)",
        "412.0 MB",
        "no space",
        "xgboost 3.4.1 holds 48.0 MB",
        "accepted (team)",
        "CVE-2024-22195",
        "Fixed in 3.1.3.",
        "opt/a.so: it ends early",
        "bloat",
    ):
        assert expected in text, expected


def test_an_audit_shows_what_is_downloaded_in_vain() -> None:
    audited = replace(result(), audit=AuditTotals(3_000_000_000, 6_000_000_000, 2_500_000_000))
    text = Page(run_html.render(report(targets=(audited,)))).text
    assert "3.0 GB" in text and "2.5 GB" in text


def test_the_policy_allows_this_style_and_this_script_and_nothing_else() -> None:
    page = Page(run_html.render(report(finding())))
    (policy,) = [
        attributes["content"]
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None and policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.raw[tag].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_nothing_in_the_page_points_outside() -> None:
    source = run_html.render(report(finding()))
    assert not re.search(r"https?:|\bsrc=|\bhref=(?!\"#)|@import|url\((?!#)", source)


def test_worst_findings_come_first_and_accepted_ones_last() -> None:
    page = Page(
        run_html.render(
            report(
                finding(waived="ours", fingerprint="1" * 32, distribution="a"),
                finding(severity="note", fingerprint="2" * 32, distribution="b"),
                finding(fingerprint="3" * 32, distribution="c"),
            )
        )
    )
    kinds = [attributes["class"] for tag, attributes in page.elements if tag == "article"]
    assert kinds == ["error", "note", "accepted"]


@settings(max_examples=50, deadline=None)
@example("``")
@given(st.text(alphabet=st.characters(codec=None), max_size=30))
def test_any_name_leaves_the_elements_of_the_page_as_they_are(text: str) -> None:
    def elements(name: str) -> list[str]:
        flaw = Advisory(name, (name,), (name,), name)
        one = replace(
            finding(message=name, chain=(name,), fix=Fix("replace", name, "patch")),
            distribution=name,
            advisories=(flaw,),
        )
        tree = Inventory(unread=(Unread(name, name),))
        target = replace(result(), log=name)
        return [
            tag
            for tag, _ in Page(
                run_html.render(
                    replace(report(one, targets=(target,), inventories=[tree]), subject=name)
                )
            ).elements
            if tag != "code"  # Made of what stands between backticks.
        ]

    assert elements(f"<b>{text}</p></script>") == elements("x")
