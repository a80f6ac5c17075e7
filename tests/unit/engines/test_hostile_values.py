"""Names and values of a specification cannot become instructions."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from dockerfile_reader import instructions, pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from render_cases import CUDA, lock_of, spec_of

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError
from buildmatrix.engines.dockerfile import dockerfile, dockerignore, make_environment
from buildmatrix.matrix.model import Base, Target, User

ENVIRONMENT = make_environment(Path("/nonexistent"))

hostile = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "a\nRUN rm -rf /",
            "a\r\nUSER 0",
            'a" \\\nRUN id #',
            "$(id)",
            "`id`",
            "${PATH}",
            "'; id; '",
            "\\",
            '"',
            '\\"',
            "a\\\n",
            "<<EOF",
            "a <<EOF b",
            "#",
            "x y",
            "\u2028",
            "{{ 7 * 7 }}",
            "",
        ]
    ),
)


def render(changes: dict[str, Any]) -> str:
    one = replace(CUDA, **changes)
    return dockerfile(ENVIRONMENT, spec_of(Path("/nonexistent"), one), one, lock_of(one))


@cache
def expected_keywords() -> list[str]:
    return [keyword for keyword, _ in instructions(render({}))]


def arguments_of(text: str, keyword: str) -> list[str]:
    return [arguments for found, arguments in instructions(text) if found == keyword]


def rendered_or_refused(changes: dict[str, Any]) -> str | None:
    """The Dockerfile, of which the instructions are checked; None where the value is refused."""
    try:
        text = render(changes)
    except SpecError as error:
        assert "\n" not in error.message
        return None
    assert [keyword for keyword, _ in instructions(text)] == expected_keywords()
    return text


@given(value=hostile)
def test_a_variable_arrives_as_it_was_written_or_is_refused(value: str) -> None:
    text = rendered_or_refused({"env": {"NAME": value}})
    if text is not None:
        assert pairs(arguments_of(text, "ENV")[-1]) == {"NAME": value}


@given(value=hostile)
def test_a_label_arrives_as_it_was_written_or_is_refused(value: str) -> None:
    text = rendered_or_refused({"labels": {"com.acme.note": value}})
    if text is not None:
        assert pairs(arguments_of(text, "LABEL")[0])["com.acme.note"] == value


@given(words=st.lists(hostile, min_size=1, max_size=4))
def test_a_command_arrives_word_by_word(words: list[str]) -> None:
    text = rendered_or_refused({"command": tuple(words)})
    if text is not None:
        assert json.loads(arguments_of(text, "CMD")[0]) == words


@given(source=hostile, destination=hostile)
def test_a_copy_names_its_two_paths_and_expands_nothing(source: str, destination: str) -> None:
    text = rendered_or_refused({"copy": ((source, destination),)})
    if text is not None:
        words = json.loads(arguments_of(text, "COPY")[1])
        # What the builder's shell lexer makes of a word in which every special one is escaped.
        found, arrives = (unescape(word) for word in words)
        assert arrives == destination
        # In a pattern, `[[]` stands for `[`; the other wildcards cannot be said.
        assert found.replace("[[]", "[") == source
        assert not re.search(r"[*?\\]", source)


def unescape(word: str) -> str:
    plain, escaped = "", False
    for character in word:
        if not escaped and character == "\\":
            escaped = True
            continue
        assert escaped or character not in "$\"'", word
        plain, escaped = plain + character, False
    assert not escaped
    return plain


@given(name=hostile)
def test_user_and_group_names_stay_one_shell_word(name: str) -> None:
    text = rendered_or_refused({"user": User(name, 10001, (name,))})
    if text is not None:
        words = shlex.split(arguments_of(text, "RUN")[-2])
        assert words.count(name) + words.count(name + ";") >= 3


@pytest.mark.parametrize(
    "field", ["id", "runtime", "python", "project", "platform", "lock", "template"]
)
@given(value=hostile)
@settings(max_examples=60)
def test_no_other_field_adds_an_instruction(field: str, value: str) -> None:
    rendered_or_refused({field: value})


@given(value=hostile)
def test_no_image_reference_architecture_or_package_adds_an_instruction(value: str) -> None:
    rendered_or_refused({"base": Base(value, CUDA.base.final)})
    rendered_or_refused({"base": Base(CUDA.base.build, value)})
    rendered_or_refused({"archs": ("sm_90", value)})
    for manager in ("apt", "dnf", "zypper"):
        rendered_or_refused({"package_manager": manager, "system_packages": (value,)})


@given(keys=st.dictionaries(hostile, st.just("x"), min_size=1, max_size=2))
def test_a_name_that_is_no_name_is_refused(keys: dict[str, str]) -> None:
    for field in ("env", "labels"):
        text = rendered_or_refused({field: keys})
        if text is not None:
            found = pairs(arguments_of(text, "ENV" if field == "env" else "LABEL")[-1])
            assert keys.items() <= found.items()


@given(source=hostile)
def test_a_copied_path_adds_no_line_to_the_ignore_file(source: str) -> None:
    one: Target = replace(CUDA, copy=((source, "/app"),))
    try:
        text = dockerignore(spec_of(Path("/nonexistent"), one), one)
    except SpecError:
        return
    allowed = [line for line in text.split("\n") if line.startswith("!")]
    assert len(allowed) == 2 or "*" not in text.split("\n")


def test_a_line_break_is_refused_with_the_target_and_the_template() -> None:
    with pytest.raises(SpecError) as caught:
        render({"env": {"NAME": "a\nUSER 0"}})
    assert caught.value.message == (
        "cuda.Dockerfile.j2: cuda12.8-py312-server: `a USER 0` has a line break or another control "
        "character; see docs/templates.md"
    )
