"""Result of a call: a document, the exit code of the contract, and the document as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from buildmatrix.errors import EXIT_OK, ComponentError, UsageError
from buildmatrix.reports.formats import Destination, Format, by_name, names
from buildmatrix.reports.repository import time_of_writing
from buildmatrix.text import safe

Document = TypeVar("Document", covariant=True)


@dataclass(frozen=True, slots=True)
class CommandResult(Generic[Document]):
    """Result of a command.

    Attributes:
        document: the data, whose keys `docs/contract.md` lists.
        exit_code: what the command line would end with: 0 where nothing fails, 1 for findings, 3
            for what is undecided, and so on.
        formats: what the document can be rendered as.
        root: the folder that paths in the document start from; None where it holds none.
    """

    document: Document
    exit_code: int
    formats: Sequence[Format]
    root: Path | None = None

    @property
    def ok(self) -> bool:
        """True if a CI step with this result is green."""
        return self.exit_code == EXIT_OK

    def render(self, format: str = "json", *, width: int = 100, every: bool = False) -> str:
        """The document as text, for a file or another program: no colors.

        `format` is a name that `--format` of the command takes, `width` the columns of a table,
        `every` lists everything, however long. Text of strangers in it is made safe for terminals
        and CI logs. Raises `UsageError` for a format that the document does not have.
        `data` returns formats that are not text, such as `parquet`.
        """
        form = self._format(format)
        if form.syntax.binary:
            raise UsageError(f"the format {format} is no text; take `data`")
        to = Destination(
            width=width, every=every, exit_code=self.exit_code, time=time_of_writing()
        ).below(self.root)
        return safe(form.render(self.document, to), form.syntax)

    def data(self, format: str = "json") -> bytes:
        """The document as the bytes of a file, in any of its formats.

        Raises what `render` raises, and `ComponentError` where a package is missing that the format
        needs.
        """
        form = self._format(format)
        if form.lacks:
            raise ComponentError(form.lacks)
        if not form.syntax.binary:
            return self.render(format).encode()
        return form.data(self.document, Destination())

    def _format(self, name: str) -> Format:
        if name not in names(self.formats):
            raise UsageError(f"there is no format {name!r}; take {', '.join(names(self.formats))}")
        return by_name(self.formats, name)
