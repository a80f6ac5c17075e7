"""Sections of reports, and what each renderer makes of them."""

from __future__ import annotations

from typing import get_args

import pytest

from buildmatrix.base.data import replace
from buildmatrix.judge.model import GateState, NodeState, Severity, VerdictName
from buildmatrix.reports import markdown, page, terminal
from buildmatrix.reports.doctor import ClassState
from buildmatrix.reports.fleet import Change, FleetState
from buildmatrix.reports.preflight import CheckState
from buildmatrix.reports.sections import (
    STATES,
    Item,
    Row,
    Section,
    drop_empty_columns,
    limit,
    sentences,
    state_in,
)
from buildmatrix.reports.verify import MoveState

ITEM = Item("error", "BM101", "foreign", "demo 1", "demo is <foreign>", chain=("a.in:1", "demo 1"),
            remedies=("fix: drop it",), before="accepted", change="changed")  # fmt: skip
TABLE = Section(
    "targets",
    "Targets",
    ("state", "size", "", "target"),
    (
        Row(("failed (BM101)", "1 B", "", "<cpu> -> gpu"), sign="+", is_loud=True),
        Row(("not-run", "22 B", "", "b" * 60)),
    ),
    frozenset({1}),
    frozenset({0}),
)


def draw_terminal(section: Section, width: int = 60, *, color: bool = False) -> str:
    return "\n".join(*terminal.draw([section], width, terminal.Painter(color)))


def draw_page(section: Section) -> str:
    template = '{% import "page/parts.html.j2" as parts %}{{ parts.card(section) }}'
    return page._environment(()).from_string(template).render(section=section)


def test_each_state_of_a_report_has_a_mood() -> None:
    kinds = (
        GateState, NodeState, Severity, VerdictName, Change, FleetState, ClassState, CheckState,
        MoveState,
    )  # fmt: skip
    assert {state for kind in kinds for state in get_args(kind)} <= set(STATES)


def test_a_table_in_a_terminal_aligns_its_cells_and_does_not_break_names() -> None:
    assert draw_terminal(drop_empty_columns(TABLE)).splitlines() == [
        "targets",
        "    state           size  target",
        "  + failed (BM101)   1 B  <cpu> -> gpu",
        "    not run         22 B",
        f"      {'b' * 60}",
    ]
    assert "\x1b[31mfailed (BM101)\x1b[0m" in draw_terminal(TABLE, color=True)


def test_a_table_as_markdown_begins_with_what_its_rows_are_about() -> None:
    title, rule, *rows = markdown.draw([drop_empty_columns(TABLE)])
    assert title == "| **Targets** | state | size |"
    assert rule == "|---|---|---:|"
    assert rows[0] == r"| + **\<cpu\> -\> gpu** | **failed** (BM101) | 1 B |".replace(
        r"-\>", "&rarr;"
    )
    folded = [*markdown.draw([replace(TABLE, is_folded=True)])]
    assert "<details><summary>Targets</summary>" in folded and "</details>" in folded


def test_a_table_on_a_page_has_chips_and_signs_and_no_markup_of_others() -> None:
    page = draw_page(TABLE)
    assert '<span class="chip bad">failed (BM101)</span>' in page
    assert '<span class="chip not-run">not run</span>' in page
    assert '<span class="sign plus">+</span> &lt;cpu&gt;' in page and "<cpu>" not in page


def test_an_item_says_the_same_in_each_format() -> None:
    section = Section("new", "New findings", items=(ITEM,))
    assert draw_terminal(section).splitlines()[1:] == [
        "  changed accepted -> error BM101 foreign  demo 1",
        "    demo is <foreign>",
        "    a.in:1 -> demo 1",
        "    fix: drop it",
    ]
    lines = [*markdown.draw([section])]
    assert lines[2] == r"- **changed accepted &rarr; error BM101** foreign: demo is \<foreign\>"
    assert lines[3:5] == ["  <br>a.in:1 &rarr; demo 1", "  <br>fix: drop it"]
    page = draw_page(section)
    assert "demo is &lt;foreign&gt;" in page and "<li>a.in:1</li><li>demo 1</li>" in page


def test_no_text_of_a_section_repaints_a_terminal() -> None:
    evil = "a\x1b[2J"
    item = Item("error", evil, evil, evil, evil, (evil,), (evil,), (evil,))
    table = Section(evil, evil, (evil,), (Row((evil,)),), lead=evil, items=(item,))
    assert "\x1b" not in draw_terminal(table)


def test_what_is_left_out_is_counted() -> None:
    section = sentences("notes", "Notes", map(str, range(9)), 2)
    assert (len(section.rows), section.more) == (2, 7)
    assert draw_terminal(section).startswith("notes (2 of 9)\n")
    assert "**Notes** (2 of 9)" in markdown.draw([section])
    assert "And 7 more" in draw_page(section)
    assert limit(section, None) is section


def test_columns_that_say_nothing_are_dropped_with_what_refers_to_them() -> None:
    dropped = drop_empty_columns(TABLE)
    assert dropped.header == ("state", "size", "target")
    assert (dropped.subject, dropped.numbers, dropped.states) == (2, {1}, {0})
    assert drop_empty_columns(dropped) is dropped


@pytest.mark.parametrize(
    ("cell", "state"),
    [("failed", "failed"), ("refused (BM702)", "refused"), ("-", ""), ("ours (failed)", "")],
)
def test_a_cell_names_its_state_first(cell: str, state: str) -> None:
    assert state_in(cell) == state
