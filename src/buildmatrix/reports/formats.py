"""Formats of each document. A format is one function, and one line here.

A format's module is imported when its text is requested.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError, describe_extra
from buildmatrix.base.text import BINARY, JSON, JSON_LINE, LINES, MARKUP, PAGE, STYLED, Syntax

#: Bytes of a file that is read for the columns of its lines.
_LARGEST_TEXT = 4 << 20


def text_below(top: Path, folder: Path, name: str) -> str | None:
    """The text of a file that a report names, as seen from `folder`; None outside of `top`.

    Reports are read from others: what they name may be anything.
    """
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(top) or not path.is_file():
            return None
        if path.stat().st_size > _LARGEST_TEXT:
            return None
        return path.read_bytes().decode()
    except (OSError, ValueError, RuntimeError):  # The last for links that loop.
        return None


def time_of_writing() -> datetime:
    """Return the time for formats that need one: `SOURCE_DATE_EPOCH`, else now; in UTC, whole
    seconds.

    Raises `UsageError` for a `SOURCE_DATE_EPOCH` that is not a time.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {epoch[:40]!r}; write seconds since 1970-01-01"
        ) from error


class Destination(Struct, frozen=True):
    """Facts about the place that a text goes to."""

    #: Columns, and whether colors are shown.
    width: int = 100
    color: bool = False
    #: True if everything is listed, however long.
    every: bool = False
    #: The folder that the paths in a document start from, and the root of the repository that it is
    #: in, if any; absolute.
    root: PurePath | None = None
    top: PurePath | None = None
    #: The folder that the command runs in; absolute.
    here: PurePath | None = None
    #: Reads a file of the repository that a document names; None for what has no text.
    text_of: Callable[[str], str | None] | None = None
    #: Exit code of the command, if known before the document is written.
    exit_code: int | None = None
    #: Time in formats that need one.
    time: datetime | None = None

    def below(self, root: Path | None) -> Destination:
        """The same, for a document whose paths start from `root`; None where it has no paths."""
        if root is None:
            return self
        folder = root.resolve()
        # `.git` is a file in the folders of `git worktree`.
        up = (folder, *folder.parents)
        top = next((path for path in up if (path / ".git").exists()), None)
        text_of = partial(text_below, top or folder, folder)
        return replace(self, root=folder, top=top, here=Path.cwd(), text_of=text_of)


class Format(Struct, frozen=True):
    """One format of one kind of document."""

    name: str
    #: Renderer of a document: `module:function` below `buildmatrix.reports`. Its further parameters
    #: have the names of fields of a `Destination`.
    renderer: str
    syntax: Syntax
    #: Preparation of the document for the renderer; empty for none.
    preparer: str = ""
    #: The package without which it cannot be written, and the extra of buildmatrix that has it.
    package: str = ""
    extra: str = ""

    def render(self, document: object, to: Destination) -> str:
        """The document as text; a pure function of its arguments. Not in a binary syntax."""
        text: str = self._rendered(document, to)
        return text

    def data(self, document: object, to: Destination) -> bytes:
        """The document in a binary syntax."""
        data: bytes = self._rendered(document, to)
        return data

    def _rendered(self, document: object, to: Destination) -> Any:
        if self.preparer:
            document = _load(self.preparer)(document)
        render = _load(self.renderer)
        _, *names = signature(render).parameters
        return render(document, **{name: getattr(to, name) for name in names})

    @property
    def lacks(self) -> str:
        """Package to install before it can be written; empty if nothing is missing."""
        if not self.package or find_spec(self.package) is not None:
            return ""
        return (
            f"the format {self.name} needs the package {self.package}: {describe_extra(self.extra)}"
        )


def _load(name: str) -> Any:
    """Return the function or class `module:name` below `buildmatrix.reports`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"buildmatrix.reports.{module}"), attribute)


_WHOLE, _ONCE, _BY_LINE = "run:whole", "run:drop_duplicates", "run:flatten_texts"
_JSON = "json_form:render"
_PLAIN_JSON = Format("json", _JSON, JSON)

#: Formats of a `reports.run.Report`; the first of each kind is what a command writes by
#: default.
RUN = (
    Format("table", "run_table:render", STYLED, _BY_LINE),
    Format("json", _JSON, JSON, _WHOLE),
    Format("concise", "ci:render_lines", LINES, _BY_LINE),
    Format("sarif", "sarif:render", JSON, _ONCE),
    Format("junit", "ci:render_junit", MARKUP, _BY_LINE),
    Format("codequality", "ci:render_code_quality", JSON, _BY_LINE),
    Format("dependency-scanning", "ci:render_dependency_scanning", JSON, _ONCE),
    Format("markdown", "run_markdown:render", MARKUP, _BY_LINE),
    Format("html", "run_html:render", PAGE, _BY_LINE),
    Format("cyclonedx", "cyclonedx:render", JSON, _WHOLE),
    Format("spdx", "spdx:render", JSON, _WHOLE),
)
#: Formats of a `reports.diff.Comparison`.
DIFF = (
    Format("table", "diff_sections:render_table", STYLED),
    _PLAIN_JSON,
    Format("markdown", "diff_sections:render_markdown", MARKUP),
    Format("html", "diff_html:render", PAGE),
)
#: Formats of `reports.diff.Drifts`.
DRIFT = (
    Format("table", "diff_sections:render_drift_table", STYLED),
    _PLAIN_JSON,
    Format("markdown", "diff_sections:render_drift_markdown", MARKUP),
    Format("html", "diff_html:render_drift", PAGE),
)
_CHAINS, _DRAWN = "drawings:draw_answer", "drawings:remove_secrets"
#: Formats of a `reports.why.Answer`.
WHY = (
    Format("text", "why_text:render", STYLED),
    Format("json", _JSON, JSON, "why_text:make_document"),
    Format("dot", "drawings:render_dot", MARKUP, _CHAINS),
    Format("mermaid", "drawings:render_mermaid", LINES, _CHAINS),
)
#: Formats of `reports.inspect.Inspections`.
INSPECT = (Format("table", "inspect:render", STYLED), _PLAIN_JSON)
#: Formats of a `reports.verify.Promotion`.
PROMOTE = (Format("table", "verify:render_promotion", STYLED), _PLAIN_JSON)
#: Formats of a `reports.verify.Verification`.
VERIFY = (Format("table", "verify:render", STYLED), _PLAIN_JSON)
#: Formats of a `reports.doctor.Diagnosis`.
DOCTOR = (
    Format("table", "doctor:render_table", LINES),
    _PLAIN_JSON,
    Format("prometheus", "doctor:render_metrics", LINES),
)
#: Formats of a `reports.doctor.NodeClassCheck`.
NODE_CLASSES = (Format("table", "doctor:render", STYLED), _PLAIN_JSON)
_SAFE = "preflight:remove_secrets"
#: Formats of a `reports.preflight.Preflight`.
PREFLIGHT = (
    Format("table", "preflight_formats:render_table", STYLED),
    _PLAIN_JSON,
    Format("junit", "preflight_formats:render_junit", MARKUP, _SAFE),
    Format("markdown", "preflight_formats:render_markdown", MARKUP, _SAFE),
    Format("html", "preflight_formats:render", PAGE, _SAFE),
)
#: Formats of a `reports.fleet.FleetReport`.
FLEET = (
    Format("table", "fleet_sections:render_table", STYLED),
    Format("json", _JSON, JSON, "fleet_documents:make_document"),
    Format("jsonl", "fleet_documents:render_lines", JSON_LINE),
    Format("markdown", "fleet_sections:render_markdown", MARKUP),
    Format("html", "fleet_html:render", PAGE),
    Format("parquet", "fleet_documents:render_parquet", BINARY, package="pyarrow", extra="parquet"),
)
#: Formats of a `reports.drawings.Drawing`.
DRAWING = (
    Format("json", _JSON, JSON, _DRAWN),
    Format("dot", "drawings:render_dot", MARKUP, _DRAWN),
    Format("mermaid", "drawings:render_mermaid", LINES, _DRAWN),
)

#: Every table.
ALL = (
    RUN,
    DIFF,
    DRIFT,
    WHY,
    INSPECT,
    PROMOTE,
    VERIFY,
    DOCTOR,
    NODE_CLASSES,
    PREFLIGHT,
    FLEET,
    DRAWING,
)


def names(formats: Sequence[Format]) -> tuple[str, ...]:
    """The names of formats, in their order."""
    return tuple(item.name for item in formats)


def find_format(formats: Sequence[Format], name: str) -> Format:
    """One of the formats. Raises `StopIteration` for a name that none of them has."""
    return next(item for item in formats if item.name == name)


#: Classes of the documents that commands write, with the titles of their schemas. `report` is that
#: of `audit`, `build` and `scan`, `drift` that of `diff --targets`, and `fleet-result` a line.
_SCHEMAS = {
    "report": ("run:Report", "A report of buildmatrix"),
    "diff": ("diff:Comparison", "A comparison of buildmatrix"),
    "drift": ("diff:Drifts", "Drift between the targets of buildmatrix"),
    "promotion": ("verify:Promotion", "A promotion of buildmatrix"),
    "verification": ("verify:Verification", "A verification of buildmatrix"),
    "doctor": ("doctor:Diagnosis", "A diagnosis of buildmatrix"),
    "node-classes": ("doctor:NodeClassCheck", "Node classes checked by buildmatrix"),
    "preflight": ("preflight:Preflight", "A preflight of buildmatrix"),
    "fleet": ("fleet_documents:FleetDocument", "A fleet judged by buildmatrix"),
    "fleet-result": ("fleet:FleetResult", "One image of a fleet judged by buildmatrix"),
}


def document_schema(document: str) -> dict[str, Any]:
    """Return the JSON schema of a document, by its name in `buildmatrix schema`."""
    from buildmatrix.reports.json_form import schema

    name, title = _SCHEMAS[document]
    return schema(_load(name), title)
