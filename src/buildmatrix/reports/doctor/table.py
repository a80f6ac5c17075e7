"""A diagnosis as text: a line for each thing that was checked."""

from __future__ import annotations

from buildmatrix.reports.doctor.model import Diagnosis, DoctorLine
from buildmatrix.text import printable

_WIDTH = 8


def line(checked: DoctorLine) -> str:
    """One line; `doctor` prints each when it is known."""
    return printable(f"{checked.state.ljust(_WIDTH)} {checked.subject}: {checked.text}")


def render(diagnosis: Diagnosis) -> str:
    """All lines, in their order."""
    return "".join(f"{line(checked)}\n" for checked in diagnosis.checks)
