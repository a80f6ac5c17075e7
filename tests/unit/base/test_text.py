"""Foreign text: what a terminal or a CI runner obeys, and what is secret, never leaves."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buildmatrix.base.text import (
    each_text,
    guarded,
    in_json,
    in_markup,
    printable,
    shown,
    visible,
    without_login,
)

SNIPPETS = (
    "::stop-commands::x", "\n::error::", "  ::add-mask::x", "##vso[task.setvariable]", "##[group]",
    "##teamcity[x", "\r", "\n", "\x1b[2J", "\x1b]8;;http://x\x07", "\x85", "\x9b31m", "\u202e",
    "\u2066", "\u2028", "\udc80", "\U000e0041", "\x00", "\x7f", "name", "<b>", "#", ":", '"', "\\",
)  # fmt: skip
hostile = st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=5)), max_size=8).map(
    "".join
)
OBEYED = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)


def is_hidden(char: str) -> bool:
    """What the standard calls a control, a format or a break; what is not a character at all."""
    return char not in "\n\t\u200d\u200c" and (
        unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(char)
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    )


@given(hostile)
@example("::x\n\t ::y")
@example("###[x")
def test_an_output_has_nothing_that_is_obeyed(text: str) -> None:
    for escape in (visible, in_json, in_markup):
        safe = guarded(text, escape)
        assert not OBEYED.search(safe)
        assert not any(map(is_hidden, safe))
        assert len(safe.split("\n")) == len(text.split("\n"))
        assert guarded(safe, escape) == safe


@given(hostile)
def test_a_guarded_json_document_has_the_same_value(text: str) -> None:
    document = json.dumps({text: [text]}, indent=2, ensure_ascii=False)
    safe = guarded(document, in_json)
    assert not OBEYED.search(safe)
    assert not any(map(is_hidden, safe))
    # `json` joins halves of surrogate pairs, whichever way they are written.
    assert json.loads(safe) == json.loads(json.dumps({text: [text]}))


@given(hostile)
def test_a_guarded_xml_document_can_still_be_read(text: str) -> None:
    root = ET.Element("a", name=printable(text))
    root.text = printable(text)
    document = ET.tostring(root, encoding="unicode")
    read = ET.fromstring(guarded(document, in_markup))
    assert (read.get("name"), read.text or "") == (printable(text), printable(text))


@given(hostile)
def test_a_piece_of_text_stays_on_its_line(text: str) -> None:
    assert len(printable(text).splitlines()) <= 1
    assert printable(printable(text)) == printable(text)


def test_only_our_own_styles_pass_and_only_where_they_are_wanted() -> None:
    ours, foreign = "\x1b[31;1mred\x1b[0m", "\x1b[8mhidden\x1b[2J"
    assert guarded(ours, styled=True) == ours
    assert guarded(ours) == r"\x1b[31;1mred\x1b[0m"
    assert guarded(foreign, styled=True) == r"\x1b[8mhidden\x1b[2J"


# Secrets

SECRETS = (
    "http://user:PW@host/x.whl",
    "HTTP://user:PW@host/x.whl",
    "hTTps://PW@host/x.whl",
    "http://user:P/PW@host/x.whl",
    "http://user:P@PW@host/x.whl",
    "http://user:P?PW#PW@host/x.whl",
    "http://user:12/PW@host.example/x.whl",
    'http://user:P"PW@host/x.whl',
    "http://[PW@x/",
    "user:PW@host.example/x.whl",
    "user:P/PW@host/x.whl",
    "wheel:user:PW@host/x.whl",
    "wheel:http://user:PW@host/x.whl",
    "//user:PW@host/x.whl",
    "/tmp/folder/HTTP:/user:PW@host/x.whl",
    "git+ssh://git:PW@host/repo",
    "git+https://user:PW@host/repo@v1",
    "ftp://user:PW@host/x",
    "https://host/x.whl?X-Amz-Signature=PW&X-Amz-Date=1",
    "https://host/x.whl?a=1&amp;sig=PW",
    "https://host/x.whl?PW",
    "https://mirror/https://user:PW@host/x",
    "http://http://user:PW@host/x",
    "host.example/x.whl?access_token=PW",
    "https://host/x.whl#access_token=PW",
    "demo @ https://host/x.whl?key=PW;1#sha256=00",
)
HARMLESS = (
    "git+ssh://git@github.com/o/r@v1",
    "ssh://git@host/x",
    "git+https://github.com/o/r@main#egg=demo&subdirectory=x",
    "http://localhost:3000/o/r@v1",
    "http://host:${PORT}/x@1",
    "docker:registry.example:5000/a@sha256:0011",
    "docker://demo@sha256:0011",
    "demo @ https://host/demo-1.0.whl#sha256=0011",
    # A package URL of an image (purl-spec: OCI).
    "pkg:oci/inferno@sha256%3A0011?repository_url=ghcr.io/acme/inferno",
    "pkg:rpm/rhel/libx@1.0-1?arch=x86_64&distro=rhel-9.4&epoch=1",
    "requirements:some@thing.txt",
    "/srv/node_modules/@types/x",
    "mail somebody@host.example/x",
    "demo==1.0; python_version >= '3.9'",
    "why?",
    "dir:/srv@1/app",
)


@pytest.mark.parametrize("text", SECRETS)
def test_no_secret_of_an_address_is_shown(text: str) -> None:
    for around in ("{}", "({}) and more", "`{}`", "first: {}", "x={},y"):
        said = shown(around.format(text))
        assert "PW" not in said
        assert shown(said) == said


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert shown(text) == text
    assert without_login(text) == text


def test_what_is_stored_keeps_its_query_to_be_read_again() -> None:
    assert without_login("https://u:PW@host/x?sig=1") == "https://host/x?sig=1"
    assert without_login('a = "http://h/x", b = "c@d"') == 'a = "http://h/x", b = "c@d"'


@pytest.mark.parametrize(
    "text",
    ["a" * 600_000 + "@", "a:" * 240_000 + "@", '"a:' * 100_000 + "@", "//" * 270_000 + "@",
     "http://a:" * 60_000 + "@", "?a=" * 180_000, "#" * 600_000 + "[", "a" * 600_000 + " ?",
     "http://" * 90_000 + "@?", "?#" * 270_000 + "=", " " * 450_000 + ":"],
)  # fmt: skip
def test_hostile_text_costs_no_more_than_its_length(text: str, no_hang: None) -> None:
    # A second at most. With each letter looked at from each, it would take many minutes.
    shown(text)
    without_login(text)
    guarded(text)


# Data


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    more: tuple[str, ...] = ()
    error: str = ""
    number: int = 0
    named: dict[str, list[str]] = field(default_factory=dict)


def test_every_text_in_data_is_changed() -> None:
    part = Part("a\n", ("b\n",), "c\r\nd", 1, {"e\n": ["f\n"]})
    changed = each_text((part, None), printable, lines={"error"})
    assert changed == (Part(r"a\n", (r"b\n",), "c\\r\nd", 1, {r"e\n": [r"f\n"]}), None)
    same = Part("a")
    assert each_text(same, printable) is same


def test_what_is_masked_already_keeps_the_escape_behind_it() -> None:
    for text in ("http://host/x?token=SECRET<script>", "http://host/x?SECRET<script>"):
        escaped = shown(text).replace("*", "\\*").replace("<", "\\<")
        assert "SECRET" not in escaped
        assert shown(escaped) == escaped


def test_the_same_text_is_changed_once_and_what_stays_is_not_copied() -> None:
    asked: list[str] = []

    def change(text: str) -> str:
        asked.append(text)
        return text.replace("bad", "good")

    same = {"a": ("x", 1), "b": [None, 2.5]}
    changed = each_text(({"bad": "x"}, same, "bad", ["bad", "x"]), change)
    assert changed == ({"good": "x"}, same, "good", ["good", "x"])
    assert changed[1] is same
    assert sorted(asked) == ["a", "b", "bad", "x"]
