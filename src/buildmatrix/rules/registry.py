"""Every rule, in one table. What a rule says in detail stands in its page, `docs/rules/CODE.md`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from buildmatrix.rules.model import Severity

#: What a rule looks at: the `lock` of a target (the same rule also looks at what is installed),
#: the locked `wheels` before they are installed, the `image` that was built, or the `run` as a
#: whole. `audit` also applies the rules about an image's files to the wheels; see `rules.engine`.
Needs = Literal["lock", "wheels", "image", "run"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Single findings may be milder than `severity`; the rule's page says when."""

    code: str
    name: str
    severity: Severity
    summary: str
    needs: Needs


RULES: tuple[Rule, ...] = (
    Rule(
        "BM101", "foreign-dependency", "error", "a distribution belongs to another backend", "lock"
    ),
    Rule(
        "BM102", "foreign-local-version", "error", "a local version names another backend", "lock"
    ),
    Rule("BM103", "other-runtime", "error", "a distribution is for another toolkit line", "lock"),
    Rule(
        "BM104", "default-build", "error", "a default build, where this backend has its own", "lock"
    ),
    Rule("BM105", "no-build-for-backend", "error", "a release has no build for it", "lock"),
    Rule("BM106", "stale-lock", "error", "a lock is older than its inputs", "wheels"),
    Rule("BM107", "source-only", "warning", "no wheel, so nothing is known", "wheels"),
    Rule(
        "BM108", "wrong-index", "error", "a build is not from the index that is prescribed", "lock"
    ),
    Rule(
        "BM109", "two-lines", "error", "two toolkit lines of one backend are in one lock", "wheels"
    ),
    Rule(
        "BM110",
        "foreign-requirement",
        "error",
        "a wheel requires what belongs to another backend",
        "image",
    ),
    Rule("BM201", "bundled-foreign-library", "error", "a library of another backend", "image"),
    Rule(
        "BM202",
        "driver-library-in-image",
        "error",
        "a driver file that the host must give",
        "image",
    ),
    Rule("BM203", "foreign-tool", "error", "a tool or bitcode of another backend", "image"),
    Rule("BM204", "path-owned-twice", "error", "two distributions wrote one path", "image"),
    Rule("BM205", "distribution-twice", "error", "a distribution is there twice", "image"),
    Rule("BM301", "foreign-needed", "error", "a file links a library of another backend", "image"),
    Rule("BM302", "unresolved-soname", "error", "a file links a library that is nowhere", "image"),
    Rule("BM303", "two-runtimes", "error", "two toolkit lines of one runtime library", "image"),
    Rule("BM304", "library-twice", "warning", "base and wheels bring the same library", "image"),
    Rule("BM401", "foreign-device-code", "error", "device code for another backend", "image"),
    Rule("BM402", "missing-architecture", "warning", "no device code for a declared GPU", "image"),
    Rule(
        "BM501", "foreign-dlopen", "note", "a file can load a library of another backend", "image"
    ),
    Rule("BM502", "failing-import", "error", "an import fails on this backend", "image"),
    Rule("BM601", "foreign-base", "error", "the base holds another backend's toolkit", "image"),
    Rule("BM602", "foreign-environment", "error", "a variable of another backend is set", "image"),
    Rule("BM603", "size-budget", "error", "the image is larger than the policy allows", "image"),
    Rule("BM604", "deleted-bytes", "error", "a layer holds what a later one deleted", "image"),
    Rule("BM605", "package-cache", "warning", "a cache, or packages not installed", "image"),
    Rule("BM801", "known-vulnerability", "error", "a distribution has known flaws", "lock"),
    Rule("BM802", "not-checked", "warning", "nobody could tell whether it has known flaws", "lock"),
    Rule(
        "BM901", "expired-or-unused-waiver", "warning", "a waiver ran out or covers nothing", "run"
    ),
    Rule(
        "BM902", "unread-file", "warning", "a file could not be read, so nothing is known", "image"
    ),
    Rule(
        "BM903",
        "generated-file-out-of-date",
        "error",
        "a generated file is not what would be written",
        "run",
    ),
)

BY_CODE = {rule.code: rule for rule in RULES}
