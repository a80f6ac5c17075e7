"""What a saved report still says, and what it must not claim."""

from __future__ import annotations

from graph_cases import SITE, flat, labels

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why_answer import find_nodes, list_vendor_words, make_answer
from buildmatrix.commands.why_graph import make_findings_graph
from buildmatrix.judge.model import Finding
from buildmatrix.reports.why import Answer

FILE = f"{SITE}/xgboost/lib/libxgboost.so"


def finding(chain: tuple[str, ...], *evidence: Evidence) -> Finding:
    return Finding(
        rule="BM301",
        name="foreign-needed",
        severity="error",
        target="cpu-py311",
        backend="cpu",
        vendor="nvidia",
        message="a message",
        evidence=evidence,
        chain=chain,
    )


def said(kind: str, path: str, detail: str, **more: object) -> Evidence:
    return Evidence(
        kind=kind,
        vendor="nvidia",
        backend="cuda",
        path=path,
        detail=detail,
        role="runtime",
        confidence="high",
        **more,
    )  # type: ignore[arg-type]


def why(word: str, *findings: Finding) -> Answer:
    graph, evidence = make_findings_graph(findings)
    question = find_nodes(graph, word, evidence, list_vendor_words(load()))
    return make_answer("report:r.json", graph, question, every=False, subjects=6, most=1)


LINKED = finding(
    ("base.in:3", "acme 2.0", "xgboost 3.4.1", FILE, "libcudart.so.12"),
    said("needed", FILE, "libcudart.so.12", distribution="xgboost==3.4.1"),
    said("static", FILE, "cudart (cudart-error-string)", distribution="xgboost==3.4.1", offset=64),
)


def test_the_chain_of_a_finding_is_told_again() -> None:
    answered = why("libcudart.so.12", LINKED)
    assert labels(answered.subjects[0], answered.graph) == [
        "base.in:3", "acme 2.0", "xgboost 3.4.1", "xgboost/lib/libxgboost.so", "libcudart.so.12",
    ]  # fmt: skip


def test_a_copy_is_told_with_its_offset() -> None:
    told = flat(why("cudart", LINKED))
    assert "at byte 0x40" in told
    assert "proved by cudart-error-string" in told


def test_a_link_leads_to_the_file_that_another_finding_names() -> None:
    path = f"{SITE}/nvidia/lib/libcudart.so.12"
    owner = "nvidia-cuda-runtime-cu12==12.9"
    shipped = finding(
        ("nvidia-cuda-runtime-cu12 12.9", path),
        said("bundled", path, "libcudart.so.12", size=700, distribution=owner),
    )
    answered = why("libcudart.so.12", LINKED, shipped)
    assert answered.subjects[0].node.label == path
    assert answered.subjects[0].state == "linked"


def test_what_a_report_does_not_have_is_not_denied() -> None:
    told = flat(why("libcudart.so.12", LINKED))
    assert "the report does not say whether a file has that name" in told
    assert "the report does not say by which rule it is found" in told
    assert "searched" not in told
    assert "no rule objected to" in told
    assert "No finding of report:r.json is about libfoo." in flat(why("libfoo", LINKED))
