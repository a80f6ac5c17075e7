"""`--format` and `--output`: a report as text, to one place or several."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from buildmatrix.cli.console import write
from buildmatrix.cli.options import formats_option, option, stacked, width_and_color
from buildmatrix.errors import UsageError
from buildmatrix.reports.run.model import Report
from buildmatrix.spec.model import Waiver
from buildmatrix.text import each_text, printable, shown

#: Format → module of `buildmatrix.reports.run` with a function `render`.
FORMATS = ("table", "json", "sarif", "junit", "markdown", "html", "cyclonedx")

#: Fields of a report whose texts have lines of their own.
_LINES = frozenset({"error", "patch"})

report_options = stacked(
    formats_option(FORMATS),
    option(
        "-o", "--output", type=click.Path(path_type=Path), help="File for the report; - is stdout."
    ),
    option(
        "--fail-on",
        type=click.Choice(["error", "warning", "note", "never"]),
        default="error",
        show_default=True,
        help="The least severe finding that gives exit code 1.",
    ),
    option("--strict", is_flag=True, help="What is undecided fails."),
    option("--waivers", type=click.Path(path_type=Path), help="More [[waive]] tables, in a file."),
    option(
        "--baseline",
        type=click.Path(path_type=Path),
        help="A report of before (--format json): what it has does not fail.",
    ),
)


def more_waivers(path: Path | None, ids: Sequence[str] | None) -> tuple[Waiver, ...]:
    """The waivers of `--waivers`; `ids` are the targets of the specification, if there is one."""
    if path is None:
        return ()
    from buildmatrix.rules.waivers import check_rules
    from buildmatrix.spec.waivers import load_waivers

    waivers = load_waivers(path, ids)
    check_rules(waivers)
    return waivers


def known_findings(path: Path | None) -> frozenset[str]:
    """The fingerprints of `--baseline`."""
    if path is None:
        return frozenset()
    from buildmatrix.reports.run.saved import read

    return frozenset(one.fingerprint for one in read(path).findings)


def check_formats(
    formats: Sequence[str], output: Path | None, known: Sequence[str] = FORMATS
) -> tuple[tuple[str, Path | None], ...]:
    """Format and file of each `--format`; said before the work starts, not after it.

    Where each has a file of its own, the command's first format goes where output goes otherwise:
    a file for a machine takes nothing from the person who reads along.
    """
    pairs = []
    for text in formats or ("table",):
        name, equals, path = text.partition("=")
        if name not in known or (equals and not path):
            raise UsageError(
                f"--format {text}: write one of {', '.join(known)}, with =PATH for a file"
            )
        pairs.append((name, Path(path) if path else None))
    if sum(path is None for _, path in pairs) > 1:
        raise UsageError("several formats for one output; give all but one a file: --format F=PATH")
    if all(path is not None for _, path in pairs):
        if known[0] not in dict(pairs):
            pairs.append((known[0], None))
        elif output is not None:
            raise UsageError(
                f"-o {output} would stay unwritten: every --format has a file of its own; drop one"
            )
    return tuple(pairs)


def write_report(
    report: Report,
    formats: Sequence[tuple[str, Path | None]],
    output: Path | None,
    root: Path = Path(),
) -> None:
    """Render and write a report in every format that was asked for.

    `root`: the folder that the paths in it start from.
    """
    for name, path in formats:
        place = path or output
        write(_render(name, _presentable(report, name), place, root), place, name)


def _presentable(report: Report, format_: str) -> Report:
    """The report as it may be shown: without secrets, and each text of it on its own line.

    In JSON a line break is no line break, and whoever reads it again gets what was found, with the
    findings that repeat another one: they count once that is accepted.
    """
    if format_ in ("json", "cyclonedx"):
        return each_text(report, shown)
    from buildmatrix.rules.repeats import without_repeats

    once = replace(report, findings=without_repeats(report.findings))
    return each_text(once, lambda text: printable(shown(text)), lines=_LINES)


def _render(name: str, report: Report, place: Path | None, root: Path) -> str:
    module = importlib.import_module(f"buildmatrix.reports.run.{name}")
    render: Callable[..., str] = module.render
    if name == "sarif":
        absolute = root.resolve()
        return render(report, root=absolute, top=_repository(absolute))
    if name != "table":
        return render(report)
    width, color = width_and_color(place)
    return render(report, width=width, color=color)


def _repository(folder: Path) -> Path | None:
    """The root of the git repository that a folder is in; `.git` is a file in some."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)
