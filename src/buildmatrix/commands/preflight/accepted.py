"""Checks that may fail, since they are accepted until a date (`[[waive-check]]`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date

from buildmatrix.catalogue.names import matches
from buildmatrix.reports.preflight.model import Check
from buildmatrix.spec.model import CheckWaiver


def apply_waivers(
    rung: str, checks: Sequence[Check], waivers: Iterable[CheckWaiver], today: date
) -> tuple[Check, ...]:
    """Mark failed checks covered by a waiver as `accepted`, or note since when it has expired.

    Undecided checks stay undecided: an unseen result cannot be accepted.
    """
    own = [waiver for waiver in waivers if waiver.rung == rung]
    return tuple(_apply_waiver(check, own, today) for check in checks)


def describe_accepted(checks: Iterable[Check]) -> str:
    """List the accepted failures briefly; empty for none."""
    names = [check.subject for check in checks if check.state == "accepted"]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"accepted: {shown}" if names else ""


def select_in_force(waivers: Iterable[CheckWaiver], today: date) -> tuple[CheckWaiver, ...]:
    """Return the waivers in force today."""
    return tuple(waiver for waiver in waivers if today <= waiver.expires)


def _apply_waiver(check: Check, waivers: Sequence[CheckWaiver], today: date) -> Check:
    covering = [waiver for waiver in waivers if matches(waiver.check, check.subject)]
    if check.state != "failed" or not covering:
        return check
    for waiver in select_in_force(covering, today):
        until = f"({waiver.owner}, until {waiver.expires.isoformat()})"
        return replace(check, state="accepted", message=f"{waiver.reason} {until}: {check.message}")
    last = max(covering, key=lambda waiver: waiver.expires)
    over = f"{last.owner} accepted it until {last.expires.isoformat()}, which is over"
    return replace(check, message=f"{check.message} ({over})")
