"""What probes print is read whatever they print."""

from __future__ import annotations

import json

import pytest

from buildmatrix.preflight.protocol import LONGEST, MOST, make_missing_checks, read_checks

MARK = "@@mark@@"


def line(**fields: object) -> str:
    return MARK + json.dumps(fields)


def test_checks_are_read_between_what_libraries_print() -> None:
    output = "\n".join(
        [
            "Warning: slow",
            line(subject="torch", state="passed", seconds=1.5),
            "]]]",
            '{"subject": 1}',
        ]
    )
    (check,) = read_checks(output, MARK)
    assert (check.subject, check.state, check.seconds) == ("torch", "passed", 1.5)


def test_a_line_of_another_run_does_not_count() -> None:
    assert (
        read_checks("@@other@@" + json.dumps({"subject": "torch", "state": "passed"}), MARK) == ()
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        '{"subject": "torch"}',
        '{"subject": "torch", "state": "splendid"}',
        '{"subject": "torch", "state": "passed", "values": {"deep": [[1]]}}',
        "[" * 100_000,
        '{"subject": "' + "x" * (LONGEST + 1) + '", "state": "passed"}',
    ],
    ids=range(8),
)
def test_what_is_no_check_is_undecided_and_not_lost(text: str) -> None:
    (check,) = read_checks(MARK + text, MARK)
    assert check.state == "undecided"


def test_names_and_messages_cannot_move_the_cursor_or_command_a_runner() -> None:
    (check,) = read_checks(
        line(subject="a\x1b[2J", state="failed", message="x\n::error::y" * 500), MARK
    )
    assert check.subject.isprintable() and check.message.isprintable()
    assert len(check.message) < 5_000


def test_a_flood_of_checks_ends_and_is_said() -> None:
    read = read_checks("\n".join([line(subject="x", state="passed")] * (MOST + 50)), MARK)
    assert len(read) == MOST + 1
    assert (read[-1].state, "more than" in read[-1].message) == ("undecided", True)


def test_what_was_announced_and_not_reported_is_undecided() -> None:
    seen = read_checks(line(subject="a", state="passed"), MARK)
    (rest,) = make_missing_checks(["a", "b"], seen, "it ended")
    assert (rest.subject, rest.state, rest.message) == ("b", "undecided", "it ended")
