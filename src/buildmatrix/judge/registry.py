"""Table of all rules, their pages (`docs/rules/CODE.md`), and rules that repeat others."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Literal

from msgspec import Struct

from buildmatrix.base.errors import UsageError
from buildmatrix.judge.model import FIX_KINDS, SEVERITY_RANK, Finding, Severity

# Table of all rules; `docs/rules/CODE.md` has the details of each


#: Argument of a rule's function, which determines when it runs:
#: `lock`: a `Subject`: the distributions of a lock, and those that are installed in an image;
#: `wheels`: `Wheels`: the lock as a whole, before anything is installed;
#: `files`: an `Image`: the files of an image, and of wheels before they are installed;
#: `image`: an `Image` that was built;
#: `advisories` and `run`: facts of the run as a whole, which calls the rule itself.
Scope = Literal["lock", "wheels", "files", "image", "advisories", "run"]


#: Unknown fact that a rule reports:
#: `file`: content of a file that could not be read;
#: `wheel`: content of a distribution without a wheel;
#: `license`: what the license of a distribution is;
#: `node`: what an image does on a node class;
#: `advisories`: what is known against a distribution.
Unknown = Literal["", "file", "wheel", "license", "node", "advisories"]


class Rule(Struct, frozen=True):
    """One rule. Single findings may be milder or worse than `severity`; its page says when."""

    code: str
    name: str
    summary: str
    severity: Severity = "error"
    scope: Scope = "files"
    #: All but advisories leave a run undecided, unless the finding is a note or waived.
    unknown: Unknown = ""
    #: Kinds of fixes that cure several findings at once, which are then read as one.
    shared_fixes: tuple[str, ...] = ()
    #: True if messages are `WHAT: REASON`, and findings with one reason are shown as one.
    shares_reason: bool = False
    #: The most that a policy may make of its findings: a distribution with the verdict `ok` or
    #: `optional` has no error about another vendor.
    at_most: Severity = "error"
    #: True if it needs the layers of an image.
    needs_layers: bool = False

    @property
    def is_open(self) -> bool:
        """Return True if its findings are about facts that could not be determined."""
        return self.unknown in ("file", "wheel", "license", "node")

    @property
    def function(self) -> str:
        """Name of its function, in one of the modules that `judge.judging` lists.

        Rules of `fit.REASONS` need none.
        """
        return f"check_{self.name.replace('-', '_')}"


RULES: tuple[Rule, ...] = (
    Rule(
        "BM101",
        "foreign-dependency",
        "a distribution belongs to another backend",
        scope="lock",
        shared_fixes=FIX_KINDS,
    ),
    Rule("BM102", "foreign-local-version", "a local version names another backend", scope="lock"),
    Rule(
        "BM103",
        "other-runtime",
        "a distribution is for another toolkit line",
        scope="lock",
        shared_fixes=("index",),
    ),
    Rule("BM104", "default-build", "a default build, where this backend has its own", scope="lock"),
    Rule("BM105", "no-build-for-backend", "a release has no build for it", scope="lock"),
    Rule("BM106", "stale-lock", "a lock is older than its inputs", scope="wheels"),
    Rule(
        "BM107",
        "source-only",
        "no wheel, so nothing is known",
        "warning",
        "wheels",
        unknown="wheel",
        shares_reason=True,
    ),
    Rule("BM108", "wrong-index", "a build is not from the index that is prescribed", scope="lock"),
    Rule("BM109", "two-lines", "two toolkit lines of one backend are in one lock", scope="wheels"),
    Rule("BM110", "foreign-requirement", "a wheel requires what belongs to another backend"),
    Rule("BM111", "missing-requirement", "a wheel requires what its lock lacks", scope="wheels"),
    Rule("BM201", "bundled-foreign-library", "a library of another backend"),
    Rule("BM202", "driver-library-in-image", "a driver file that the host must provide"),
    Rule("BM203", "foreign-tool", "a tool or bitcode of another backend"),
    Rule("BM204", "path-owned-twice", "two distributions wrote one path"),
    Rule("BM205", "distribution-twice", "a distribution is installed twice", scope="image"),
    Rule("BM301", "foreign-needed", "a file links a library of another backend"),
    Rule("BM302", "unresolved-soname", "a file links a library that is missing"),
    Rule("BM303", "two-runtimes", "two toolkit lines of one runtime library"),
    Rule("BM304", "library-twice", "base and wheels bring the same library", "warning", "image"),
    Rule("BM305", "missing-symbol", "a library lacks symbols that another needs"),
    Rule("BM401", "foreign-device-code", "device code for another backend"),
    Rule("BM402", "missing-architecture", "no device code for a GPU of the target", "warning"),
    Rule("BM403", "only-by-compilation", "code for a GPU that has to be compiled there", "warning"),
    Rule("BM404", "partial-architecture", "kernels that a GPU has no code for", "warning"),
    Rule("BM405", "unused-architecture", "device code for no GPU of the target", "note"),
    Rule(
        "BM501",
        "foreign-dlopen",
        "a file can load a library of another backend",
        "note",
        at_most="note",
    ),
    Rule("BM502", "failing-import", "an import fails on this backend"),
    Rule("BM601", "foreign-base", "the base holds another backend's toolkit", scope="image"),
    Rule("BM602", "foreign-environment", "a variable of another backend is set", scope="image"),
    Rule("BM603", "size-budget", "it is larger than the policy allows"),
    Rule(
        "BM604",
        "deleted-bytes",
        "a layer holds what a later one deleted",
        scope="image",
        needs_layers=True,
    ),
    Rule("BM605", "package-cache", "a cache, or packages not installed", "warning", "image"),
    Rule(
        "BM606",
        "artifact-for-other-node-class",
        "what was compiled for other machines, or for another library",
        scope="image",
    ),
    Rule("BM607", "unpinned-base", "a base image has no tag, or no digest", "warning", "lock"),
    Rule("BM608", "not-allowed", "the policy forbids it, or does not list it"),
    Rule(
        "BM609",
        "unknown-license",
        "it is unknown if its license is on a list",
        "warning",
        unknown="license",
        shares_reason=True,
    ),
    Rule("BM701", "driver-too-old", "a runtime asks for a newer driver"),
    Rule("BM702", "minor-version-compatibility", "a driver is older than the toolkit, of its line"),
    Rule(
        "BM703",
        "forward-compatibility-package",
        "the user-space half of a newer driver does not work",
    ),
    Rule("BM704", "kernel-driver", "a runtime and a kernel driver do not fit"),
    Rule("BM705", "unmet-requirement", "a node class lacks what an image asks", scope="image"),
    Rule(
        "BM706",
        "framework-against-libraries",
        "a framework finds other libraries than it was built with",
    ),
    Rule("BM707", "contradictory-node-class", "a node class says what cannot be so", scope="lock"),
    Rule("BM708", "variant-against-bytes", "a wheel variant promises what is not so here"),
    Rule("BM709", "host-instruction-level", "a file needs instructions that a node class lacks"),
    Rule(
        "BM710",
        "undecided-on-node-class",
        "it is unknown if it runs on a node class",
        "warning",
        "image",
        unknown="node",
    ),
    Rule(
        "BM801",
        "known-vulnerability",
        "a distribution has known vulnerabilities",
        scope="advisories",
    ),
    Rule(
        "BM802",
        "not-checked",
        "it could not be checked for known vulnerabilities",
        "warning",
        "advisories",
        unknown="advisories",
    ),
    Rule(
        "BM901", "expired-or-unused-waiver", "a waiver expired or covers nothing", "warning", "run"
    ),
    Rule(
        "BM902",
        "unread-file",
        "a file could not be read, so nothing is known",
        "warning",
        unknown="file",
        shares_reason=True,
    ),
    Rule(
        "BM903",
        "generated-file-out-of-date",
        "a committed generated file is out of date",
        "warning",
        "run",
    ),
)

BY_CODE = {rule.code: rule for rule in RULES}


#: Rules whose findings say that the loader refuses a file.
LOAD_FAILURES = ("BM302", "BM305")


def rule_of(code: str) -> Rule:
    """Return the rule with a code; an empty one for a code of a later version."""
    return BY_CODE.get(code) or Rule(code, "unknown-rule", "", "note", "run")


# Pages of rules


def rule_page(code: str) -> str:
    """The page of a rule as Markdown. Raises `UsageError` for a code that no rule has."""
    rule = BY_CODE.get(code.upper())
    if rule is None:
        raise UsageError(
            f"there is no rule {code}; `buildmatrix rules` lists all of them ({', '.join(BY_CODE)})"
        )
    name = f"{rule.code}.md"
    packaged = resources.files("buildmatrix.judge") / "pages" / name
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # In a checkout the pages lie where readers look for them; the wheel gets a copy.
    return (Path(__file__).parents[3] / "docs" / "rules" / name).read_text(encoding="utf-8")


# Suppression of repeated findings: one problem is one finding.
#
# If a distribution is for another toolkit line (BM103), two lines in the lock (BM109) and paths
# shared with the other line's build (BM204) are the same problem. The remaining finding is open, no
# milder, and fails for the same `--fail-on`; accepting it shows the others.


#: Rules that say of a distribution by its name what others say by its files.
_NAME_RULES = ("BM101", "BM104")
#: Rules about the files of single distributions.
FILE_RULES = ("BM201", "BM203", "BM301", "BM401", "BM501")


def drop_repeats(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without those that repeat another one of the same target, in their order."""
    ordered = tuple(findings)
    about: dict[tuple[str, str], list[Finding]] = {}
    for finding in ordered:
        for name in finding.distributions:
            about.setdefault((finding.target, name), []).append(finding)
    return tuple(
        item
        for item in ordered
        if not any(
            _is_repeat(item, other)
            for name in item.distributions
            for other in about[item.target, name]
        )
    )


def _is_repeat(finding: Finding, other: Finding) -> bool:
    """Return True if `other` repeats `finding`, and is neither milder nor more accepted."""
    if (
        SEVERITY_RANK[other.severity] < SEVERITY_RANK[finding.severity]
        or other.waived != finding.waived
    ):
        return False
    if finding.rule == "BM109":
        return other.rule == "BM103"
    if finding.rule == "BM204":
        return other.rule == "BM101" or (other.rule == "BM103" and _is_named_for_its_line(other))
    if finding.vendor != other.vendor:
        return False
    if finding.rule in FILE_RULES:
        # A distribution of another backend has files of that backend.
        return other.rule == "BM101" and other.severity == "error"
    # Files are more exact than names.
    return (
        finding.rule in _NAME_RULES
        and finding.severity == "warning"
        and other.rule in FILE_RULES
        and finding.fix is not None
        and other.fix is not None
        and finding.fix.text == other.fix.text
    )


def _is_named_for_its_line(finding: Finding) -> bool:
    """Return True if the right line's build has another name: `nixl-cu12`, not `torch +cu128`."""
    name = finding.distribution or ""
    return any(item.toolkit is not None and item.toolkit in name for item in finding.evidence)
