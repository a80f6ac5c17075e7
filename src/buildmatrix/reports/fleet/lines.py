"""JSON Lines: a result on each line, complete in itself, written as results come in.

https://jsonlines.org
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import msgspec

from buildmatrix.reports.fleet.model import FleetReport, FleetResult
from buildmatrix.reports.fleet.words import clean
from buildmatrix.reports.json_form import plain
from buildmatrix.text import each_text, guarded, in_json
from buildmatrix.threads import prepare_type


def line(result: FleetResult) -> str:
    """A result as one line, with its end; without secrets, and nothing in it is obeyed."""
    form = plain(each_text(result, clean))
    text = json.dumps({"schema": form.pop("schema"), **form}, ensure_ascii=False)
    return guarded(text, in_json) + "\n"


def render(report: FleetReport) -> str:
    """All results, in the order of the report."""
    return "".join(map(line, report.results))


def read(lines: Iterable[bytes]) -> Iterator[FleetResult]:
    """The results on some lines, as a file opened for bytes gives them.

    The last line may be torn, as a writer that was stopped leaves it: without its end it is no
    result. Raises `ValueError`, with the line's number, for anything else that is none.
    """
    decoder = msgspec.json.Decoder(prepare_type(FleetResult))
    for number, text in enumerate(lines, 1):
        if not text.endswith(b"\n"):
            return
        if not text.strip():
            continue
        try:
            yield decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"line {number} is no result of a fleet: {error}") from error
