"""Every rule, in one table. What a rule says in detail stands in its page, `docs/rules/CODE.md`."""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.rules.model import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Single findings may be milder than `severity`; the rule's page says when."""

    code: str
    name: str
    severity: Severity
    summary: str


RULES: tuple[Rule, ...] = (
    Rule("BM101", "foreign-dependency", "error", "a distribution belongs to another backend"),
    Rule("BM102", "foreign-local-version", "error", "a local version names another backend"),
    Rule("BM103", "other-runtime", "error", "a distribution is for another toolkit line"),
    Rule("BM104", "default-build", "error", "a default build, where this backend has its own"),
    Rule("BM105", "no-build-for-backend", "error", "a release has no build for it"),
    Rule("BM106", "stale-lock", "error", "a lock is older than its inputs"),
    Rule("BM107", "source-only", "warning", "no wheel, so nothing is known"),
    Rule("BM108", "wrong-index", "error", "a build is not from the index that is prescribed"),
    Rule("BM109", "two-lines", "error", "two toolkit lines of one backend are in one lock"),
    Rule(
        "BM110", "foreign-requirement", "error", "a wheel requires what belongs to another backend"
    ),
    Rule("BM201", "bundled-foreign-library", "error", "a library of another backend"),
    Rule("BM202", "driver-library-in-image", "error", "a driver file that the host must give"),
    Rule("BM203", "foreign-tool", "error", "a tool or bitcode of another backend"),
    Rule("BM204", "path-owned-twice", "error", "two distributions wrote one path"),
    Rule("BM205", "distribution-twice", "error", "a distribution is there twice"),
    Rule("BM301", "foreign-needed", "error", "a file links a library of another backend"),
    Rule("BM302", "unresolved-soname", "error", "a file links a library that is nowhere"),
    Rule("BM303", "two-runtimes", "error", "two toolkit lines of one runtime library"),
    Rule("BM304", "library-twice", "warning", "base and wheels bring the same library"),
    Rule("BM401", "foreign-device-code", "error", "device code for another backend"),
    Rule("BM402", "missing-architecture", "warning", "no device code for a declared GPU"),
    Rule("BM501", "foreign-dlopen", "note", "a file can load a library of another backend"),
    Rule("BM502", "failing-import", "error", "an import fails on this backend"),
    Rule("BM601", "foreign-base", "error", "the base holds another backend's toolkit"),
    Rule("BM602", "foreign-environment", "error", "a variable of another backend is set"),
    Rule("BM603", "size-budget", "error", "the image is larger than the policy allows"),
    Rule("BM604", "deleted-bytes", "error", "a layer holds what a later one deleted"),
    Rule("BM605", "package-cache", "warning", "a cache, or packages not installed"),
    Rule("BM801", "known-vulnerability", "error", "a distribution has known flaws"),
    Rule("BM802", "not-checked", "warning", "nobody could tell whether it has known flaws"),
    Rule("BM901", "expired-or-unused-waiver", "warning", "a waiver ran out or covers nothing"),
    Rule("BM902", "unread-file", "warning", "a file could not be read, so nothing is known"),
    Rule(
        "BM903",
        "generated-file-out-of-date",
        "error",
        "a generated file is not what would be written",
    ),
)

BY_CODE = {rule.code: rule for rule in RULES}
