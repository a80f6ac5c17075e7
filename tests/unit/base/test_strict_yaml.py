"""YAML of tools: what is read, and that hostile documents are refused soon."""

from __future__ import annotations

import pytest
import yaml

from buildmatrix.base import strict
from buildmatrix.base.strict import Table, YamlError, parse_yaml

DOCUMENT = """\
# a comment
version: 6
packages:
- conda: https://example.com/a-1-0.conda
  depends: [python >=3.12, 'x: y']
  size: 0123
  license: null
- pypi: "~"
  empty: {}
"""


def test_scalars_are_text_and_tables_know_their_line() -> None:
    document = parse_yaml(DOCUMENT)
    assert document == {
        "version": "6",
        "packages": [
            {
                "conda": "https://example.com/a-1-0.conda",
                "depends": ["python >=3.12", "x: y"],
                "size": "0123",
                "license": None,
            },
            {"pypi": "~", "empty": {}},
        ],
    }
    assert isinstance(document, Table)
    packages = document["packages"]
    assert isinstance(packages, list)
    assert [item.line for item in packages if isinstance(item, Table)] == [4, 8]


@pytest.mark.parametrize("text", ["", "# nothing\n", "null\n"])
def test_an_empty_document_is_nothing(text: str) -> None:
    assert parse_yaml(text) is None


CHAIN = [f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcd", "bcde", strict=True)]
BOMB = "a: &a [x]\n" + "".join(CHAIN)


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        (BOMB, "anchors and aliases", 1),
        ("a: 1\nb: *a\n", "anchors and aliases", 2),
        ("a: !!python/object/apply:os.system [id]\n", "tags", 1),
        ("a: 1\nb: 2\na: 3\n", "the key `a` comes twice", 3),
        ("<<: {a: 1}\n", "a key is not a text", 1),
        ("? [a]\n: 1\n", "a key is not a text", 1),
        ("a: 1\n---\nb: 2\n", "more than one document", 3),
        ("[" * 100 + "]" * 100, "nests too deeply", 1),
        ("[" * 100_000, "", 1),
        ("a: [\n", "did not find expected", 2),
        ("a: b: c\n", "mapping values are not allowed", 1),
        ("a: \x01\n", "", 0),
        ("%YAML " + "9" * 5000 + ".1\n---\na\n", "", 0),
    ],
)
def test_what_readers_take_differently_is_refused(text: str, said: str, line: int) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert said in str(caught.value)
    if line:
        assert caught.value.line == line


def test_a_document_of_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "MOST_VALUES", 1000)
    assert parse_yaml("[" + "a," * 999 + "]") == ["a"] * 999
    with pytest.raises(YamlError, match="more than 1,000 values"):
        parse_yaml("[" + "a," * 1000 + "]")


def test_python_without_libyaml_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_library = parse_yaml(DOCUMENT)
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert parse_yaml(DOCUMENT) == with_library
