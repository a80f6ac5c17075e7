"""Positions, and the promise that any text either loads or is refused with places inside it."""

from __future__ import annotations

import datetime

import tomli
import tomli_w
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from buildmatrix.base.errors import SpecError
from buildmatrix.matrix import keys, keys_settings
from buildmatrix.matrix.document import Lines, index
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.shapes import Table

TRICKY = '''\
# a comment with [brackets] and "quotes"
"quoted.key" = "a # no comment"
a.b . 'c d' = [1, [2, { x = """
]} " "" """ , y.z = 1979-05-27 07:32:00Z }], ]   # end
"\\u0061\\x62" = 1
[table]
s = \'\'\'it's''\'\'\'
e = ""
[[list]]
n = 1
[list.sub]
m = { }
[[list.inner]]
[[list.inner]]
k = [
  "x", # one
  # two
  'y'
]
[[list]]
n = 2
[table.deep]
v = true
'''


def paths(value, path=()):
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, (*path, number))


def place(text, path):
    marks = index(text)[path]
    lines = Lines(text)
    return lines.place(marks.key), lines.place(marks.value)


def test_the_index_knows_exactly_the_paths_that_the_parser_knows():
    assert set(index(TRICKY)) == set(paths(tomli.loads(TRICKY)))


def test_keys_and_values_stand_where_they_are_written():
    assert place(TRICKY, ("quoted.key",)) == ((2, 1), (2, 16))
    assert place(TRICKY, ("a", "b", "c d")) == ((3, 7), (3, 15))
    assert place(TRICKY, ("a", "b", "c d", 1, 1, "x")) == ((3, 25), (3, 29))
    assert place(TRICKY, ("a", "b", "c d", 1, 1, "y", "z")) == ((4, 17), (4, 21))
    assert place(TRICKY, ("ab",)) == ((5, 1), (5, 16))
    assert place(TRICKY, ("list", 0, "sub")) == ((11, 7), (11, 7))
    assert place(TRICKY, ("list", 0, "inner", 1, "k", 1)) == ((18, 3), (18, 3))
    assert place(TRICKY, ("list", 1, "n")) == ((21, 1), (21, 5))
    assert place(TRICKY, ("table", "deep", "v")) == ((23, 1), (23, 5))


SCALARS = (
    st.text(max_size=12)
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats()
    | st.dates()
    | st.times().map(lambda t: t.replace(fold=0))
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC))
)
KEYS = st.text(max_size=8) | st.sampled_from(["name", "python", "base", "when", "select", "*"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=6), st.booleans())
def test_every_value_of_any_document_has_a_place_inside_it(document, multiline):
    text = tomli_w.dumps(document, multiline_strings=multiline).replace("\r\n", "\n")
    marks = index(text)
    assert set(marks) == set(paths(tomli.loads(text)))
    assert all(0 <= mark.key <= mark.value < len(text) for mark in marks.values())


WORDS = st.sampled_from(
    [
        "cuda",
        "cpu",
        "3.12",
        ">=3.12",
        "any",
        "server",
        "base.in",
        "*",
        "cu*",
        "{id}",
        "{runtime.full}",
        "{",
        "3GB",
        "10s",
        "append",
        "runtime",
        "import",
        "python:3.12",
        "https://wheels.example.com/",
        "BM401",
        "/app",
        "..",
    ]
)
NAMES = {
    key.name
    for module in (keys, keys_settings, keys, keys)
    for table in vars(module).values()
    if isinstance(table, type) and issubclass(table, Table)
    for key in table.keys
}
NEAR = st.recursive(
    WORDS | st.integers(-1, 2) | st.dates() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            WORDS | st.sampled_from(sorted(NAMES)),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
ROOT = st.fixed_dictionaries(
    {},
    optional={
        name: NEAR | st.lists(NEAR, max_size=3) for name in [key.name for key in keys.SpecFile.keys]
    },
)
TABLES = [
    *["defaults", "backend.cuda", "backend.cpu", "variant.server", "[override]", "[exclude]"],
    *["[include]", "[smoke]", "[waive]", "tags", "policy", "subset.pr", "node-class.x"],
]


def refused_with_places_inside(path, text):
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        spec = load_spec(path)
    except SpecError as error:
        lines = text.replace("\r\n", "\n").split("\n")
        assert error.problems
        for problem in error.problems:
            assert problem.message
            assert problem.line is not None and 1 <= problem.line <= len(lines)
            assert problem.column is not None
            assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
            assert str(problem).isprintable()
    else:
        assert spec.targets


FIXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@FIXED
@given(st.text(max_size=200))
@example("a = 1e99999999999999999999")
@example("a = -nan")
@example("[project]\nname = 'x'\n[backend]\n")
@example("a = '\x85'")
def test_any_text_loads_or_is_refused(project, text):
    refused_with_places_inside(project / "buildmatrix.toml", text)


@FIXED
@given(ROOT)
def test_any_document_with_the_right_words_loads_or_is_refused(project, document):
    refused_with_places_inside(project / "buildmatrix.toml", tomli_w.dumps(document))


@FIXED
@given(st.sampled_from(TABLES), st.dictionaries(WORDS | KEYS, NEAR, max_size=3), st.data())
def test_any_change_of_a_good_file_loads_or_is_refused(project, small, table, extra, data):
    inside = tomli_w.dumps({"x": extra}).removeprefix("[x]\n") if extra else ""
    text = f"{small}[{table}]\n{inside}"
    cut = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 6))
    put = data.draw(st.sampled_from(["", "", '"', "[", "{", "}", "\n", "= 1", "\u2028"]))
    for candidate in (text, text[:cut] + put + text[cut + length :]):
        refused_with_places_inside(project / "buildmatrix.toml", candidate)
