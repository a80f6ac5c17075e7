"""All answers about a fleet, as every format says them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from buildmatrix.phrases import count
from buildmatrix.reports.fleet import offenders
from buildmatrix.reports.fleet.causes import FleetCause, causes
from buildmatrix.reports.fleet.images import Image, images
from buildmatrix.reports.fleet.model import FleetReport, FleetResult, FleetState
from buildmatrix.reports.fleet.nodes import NodeAnswer, node_answers
from buildmatrix.reports.fleet.owners import OwnerDrift, OwnerTotals, owner_drift, owner_totals
from buildmatrix.reports.fleet.undecided import ReasonGroup, left_out, undecided
from buildmatrix.reports.fleet.unusable import LayerTotals, PullTotals, layer_totals, pull_totals
from buildmatrix.reports.fleet.vendors import VendorTotals, vendor_totals


@dataclass(frozen=True)
class FleetAnswer:
    """Summary of a report; each part is computed on first use."""

    report: FleetReport

    @cached_property
    def images(self) -> Sequence[Image]:
        """Each image once."""
        return images(self.report.results)

    @cached_property
    def failed(self) -> int:
        """Images that failed for a backend."""
        return sum(image.is_failed for image in self.images)

    @cached_property
    def undecided_images(self) -> int:
        """Images that could not be judged for a backend, and failed for none."""
        return sum(image.is_undecided for image in self.images)

    @cached_property
    def layers(self) -> LayerTotals:
        """Every distinct layer once."""
        return layer_totals(self.report.results)

    @cached_property
    def pulls(self) -> PullTotals:
        """Every image once, and once for each of its containers."""
        return pull_totals(self.images)

    @cached_property
    def worst(self) -> Sequence[FleetResult]:
        """By bytes of a pull that are of no use."""
        return offenders.by_bytes(self.report.results)

    @cached_property
    def worst_running(self) -> Sequence[FleetResult]:
        """By the same times the containers that run it."""
        return offenders.by_containers(self.report.results)

    @cached_property
    def causes(self) -> Sequence[FleetCause]:
        """Fixes to make, the most effective first."""
        return causes(self.report.results)

    @cached_property
    def nodes(self) -> Sequence[NodeAnswer]:
        """Failures by node class."""
        return node_answers(self.report)

    @cached_property
    def owners(self) -> Sequence[OwnerTotals]:
        """By owner."""
        return owner_totals(self.images)

    @cached_property
    def vendors(self) -> Sequence[VendorTotals]:
        """By vendor."""
        return vendor_totals(self.report.results)

    @cached_property
    def undecided(self) -> Sequence[ReasonGroup]:
        """By reason."""
        return undecided(self.report.results)

    @cached_property
    def left_out(self) -> Sequence[ReasonGroup]:
        """By what is left out."""
        return left_out(self.report.results)

    @cached_property
    def owner_drift(self) -> Sequence[OwnerDrift]:
        """Changes by owner; none without an earlier report."""
        return owner_drift(self.report.drift) if self.report.drift is not None else ()

    @property
    def noun(self) -> str:
        """Noun for the members of the fleet."""
        kinds = {result.kind for result in self.report.results}
        return kinds.pop() if len(kinds) == 1 else "image" if not kinds else "result"

    @property
    def state(self) -> FleetState:
        """State of the whole fleet."""
        if self.failed:
            return "failed"
        return "undecided" if self.undecided_images or self.report.missing else "passed"

    @property
    def headline(self) -> str:
        """Summary in one line."""
        every = count(len(self.images), self.noun)
        missing = "not everything was looked at" if self.report.missing else ""
        if self.failed:
            unknown = f"{self.undecided_images} undecided" if self.undecided_images else ""
            return ", ".join(filter(None, (f"{self.failed} of {every} failed", unknown, missing)))
        if self.state == "undecided":
            parts = (
                f"{self.undecided_images} of {every}" if self.undecided_images else "",
                missing,
            )
            return f"Undecided: {', '.join(filter(None, parts))}"
        if not self.images:
            return "Nothing is in this fleet"
        return f"Passed: all of {every}" if len(self.images) > 1 else "Passed"

    @property
    def advice(self) -> str:
        """First step to take; empty if there is none."""
        first = next((cause for cause in self.causes if cause.fix), None)
        if first is None:
            return ""
        return f"{count(len(first.results), self.noun)} with {first.title}: {first.fix}"
