"""Whether findings and verdicts say the same of a tree."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.judging import Judgement, judge_image
from buildmatrix.matrix.model import Policy, bare_target

#: Verdicts of what fails a run.
BAD = ("bloat", "broken")
#: Rules whose errors also are about this backend's own vendor.
OWN = ("BM103", "BM202", "BM302", "BM502")


def judgement(backend: str, tree: Inventory, runtime: str = "any") -> Judgement:
    """All that rules say of a tree on a backend."""
    catalogue = load()
    target = bare_target(backend, backend, runtime)
    return judge_image(target, tree, evidence(tree, catalogue), None, catalogue, Policy())


def contradictions(said: Judgement, backend: str) -> Iterator[str]:
    """What findings about vendors' content and a verdict say of a distribution, if not the same."""
    own = load().backends[backend].vendor
    for verdict in said.verdicts:
        about = {
            one.severity
            for one in said.findings
            if verdict.name in one.distributions
            and (one.vendor not in (None, own) or (one.rule in OWN and one.severity == "error"))
        }
        is_bad = verdict.verdict in BAD
        if ("error" in about) != is_bad or (verdict.verdict == "ok" and "warning" in about):
            yield f"{verdict.name} on {backend} is {verdict.verdict}, with {sorted(about)}"
