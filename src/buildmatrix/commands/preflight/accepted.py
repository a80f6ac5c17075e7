"""Checks that may fail, since somebody accepted it until a day (`[[waive-check]]`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date

from buildmatrix.catalogue.names import matches
from buildmatrix.reports.preflight.model import Check
from buildmatrix.spec.model import CheckWaiver


def with_accepted(
    rung: str, checks: Sequence[Check], waivers: Iterable[CheckWaiver], today: date
) -> tuple[Check, ...]:
    """The same checks; one that failed and is covered is `accepted`, or says since when no more.

    What is undecided stays so: nobody can accept what nobody saw.
    """
    own = [waiver for waiver in waivers if waiver.rung == rung]
    return tuple(_accepted(check, own, today) for check in checks)


def said(checks: Iterable[Check]) -> str:
    """Which failures were accepted, in a few words; empty for none."""
    names = [check.subject for check in checks if check.state == "accepted"]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"accepted: {shown}" if names else ""


def in_force(waivers: Iterable[CheckWaiver], today: date) -> tuple[CheckWaiver, ...]:
    """Those that hold today."""
    return tuple(waiver for waiver in waivers if today <= waiver.expires)


def _accepted(check: Check, waivers: Sequence[CheckWaiver], today: date) -> Check:
    covering = [waiver for waiver in waivers if matches(waiver.check, check.subject)]
    if check.state != "failed" or not covering:
        return check
    for waiver in in_force(covering, today):
        until = f"({waiver.owner}, until {waiver.expires.isoformat()})"
        return replace(check, state="accepted", message=f"{waiver.reason} {until}: {check.message}")
    last = max(covering, key=lambda waiver: waiver.expires)
    over = f"{last.owner} accepted it until {last.expires.isoformat()}, which is over"
    return replace(check, message=f"{check.message} ({over})")
