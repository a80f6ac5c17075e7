"""Grammars of the strings in a specification, and ranges of versions.

Most of these strings end up in Dockerfiles, command lines or file names. A grammar here is
therefore also the guard against injection: a string that it accepts needs no trust later. `TEXT` is
the one exception (values of variables and labels, reasons): it only keeps control characters out,
and its writers quote it for another language.
"""

from __future__ import annotations

import re
import shlex
from urllib.parse import urlsplit

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier

from buildmatrix.base.data import replace
from buildmatrix.base.parsing import parse_specifiers
from buildmatrix.matrix.document import MAX_TEXT, Kind

# Versions of drivers and kernels, and their ranges.
#
# Vendors count in numbers with dots (`550.54.14`, `6.8.0-45-generic`); text behind the numbers does
# not matter here, and a missing number is 0. Ranges are written as in PEP 440.


_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9})*")
_PART = re.compile(r"\s*(>=|<=|==|!=|~=|<|>)\s*v?(\d{1,9}(?:\.\d{1,9})*)(\.\*)?[^,]*")

Numbers = tuple[int, ...]


def numbers(version: str) -> Numbers | None:
    """Return the numbers that a version begins with; None for a text that begins with none."""
    match = _NUMBERS.match(version)
    return tuple(map(int, match[0].split("."))) if match is not None else None


def _order(version: Numbers) -> Numbers:
    """Return the sort key of a version."""
    while version and not version[-1]:
        version = version[:-1]
    return version


def compare(first: Numbers, second: Numbers) -> int:
    """Return less than 0, 0 or more, as `first` is older than `second`, the same, or newer."""
    left, right = _order(first), _order(second)
    return (left > right) - (left < right)


class VersionRange(Struct, frozen=True):
    """A version or a range in a node class."""

    #: As written.
    text: str
    #: The oldest version allowed; None without a lower end.
    lowest: Numbers | None
    #: True if it contains no version.
    is_empty: bool = False


def version_range(text: str) -> VersionRange:
    """Parse one version, a range (`>=550,<570`), or an empty text, which means any."""
    single = numbers(text)
    if single is not None:
        return VersionRange(text, single)
    # Ends of its parts, each with True if it is excluded itself.
    lower: list[tuple[Numbers, bool]] = []
    upper: list[tuple[Numbers, bool]] = []
    excluded: list[Numbers] = []
    for match in filter(None, map(_PART.fullmatch, text.split(","))):
        operator, is_prefix = match[1], bool(match[3])
        value = tuple(map(int, match[2].split(".")))
        if operator == "!=" and not is_prefix:
            excluded.append(value)
        if operator in (">=", ">", "==", "~="):
            lower.append((value, operator == ">"))
        if operator in ("<", "<=") or (operator == "==" and not is_prefix):
            upper.append((value, operator == "<"))
        elif operator == "==" or (operator == "~=" and len(value) > 1):
            *first, last = value if operator == "==" else value[:-1]
            upper.append(((*first, last + 1), True))
    low, no_low = max(lower, key=lambda end: (_order(end[0]), end[1]), default=(None, False))
    high, no_high = min(upper, key=lambda end: (_order(end[0]), not end[1]), default=(None, False))
    is_empty = False
    if low is not None and high is not None:
        order = compare(low, high)
        is_empty = order > 0 or (order == 0 and (no_low or no_high or low in excluded))
    return VersionRange(text, low, is_empty)


# Grammars


def _path(text: str) -> str | None:
    if ".." not in text.split("/"):
        return None
    if text.startswith("/"):
        return "contains `..`; write the path it stands for"
    return "leaves its folder with `..`; write a path below the specification's folder"


def _system_package(text: str) -> str | None:
    if text.partition("=")[0].endswith("-"):
        return "ends with `-`, which tells apt to remove the package"
    return None


def _url(text: str) -> str | None:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        return (
            "holds credentials, which would end up in generated files; leave them out here and "
            "give them through ~/.netrc or a build secret"
        )
    if parts.scheme != "file" and not host:
        return "names no host; write something like `https://wheels.example.com/simple`"
    return None


def _specifier(text: str) -> str | None:
    try:
        parse_specifiers(text)
    except InvalidSpecifier:
        return "is not a version range; write something like `>=6.4` or `>=3.11,<3.13`"
    return None


def _distribution_range(text: str) -> str | None:
    return _specifier(text[len(distribution_part(text)) :].strip()) if is_ranged(text) else None


def distribution_part(text: str) -> str:
    """Return the part of a `DISTRIBUTION_RANGE` that names the distribution."""
    return re.split(r"[<>=!~ ]", text, maxsplit=1)[0]


def is_ranged(text: str) -> bool:
    """Return True if a `DISTRIBUTION_RANGE` has versions."""
    return distribution_part(text) != text


def _license(text: str) -> str | None:
    if "*" in text:
        return None
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        canonical = canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return "is not on the SPDX license list; write something like `GPL-3.0-only` or `GPL-*`"
    return None if canonical == text else f"is written `{canonical}`"


def _range_or_value(text: str) -> str | None:
    if not is_range(text):
        return None
    return _specifier(text) or (
        "is empty: its parts contradict each other" if version_range(text).is_empty else None
    )


def is_range(text: str) -> bool:
    """Return True if a condition is a version range (`>=3.12`) and not one value (`3.12`)."""
    return text[:1] in "<>=!~"


_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def size(text: str) -> int:
    """Return the bytes of a `SIZE`: `3GB`, `1.5 GiB`; 0 for an empty text."""
    number, unit = _number_and_unit(text)
    units = _BINARY_UNITS if unit.endswith("iB") else _UNITS
    return round(number * units[unit.removesuffix("iB").removesuffix("B")])


def seconds(text: str) -> float:
    """Return the seconds of a `DURATION`: `180s`, `1.5h`; 0 for an empty text."""
    number, unit = _number_and_unit(text)
    return number * _SECONDS.get(unit, 0.0)


def _number_and_unit(text: str) -> tuple[float, str]:
    unit = text.lstrip("0123456789. ")
    return float(text.removesuffix(unit) or 0), unit


def _command(text: str) -> str | None:
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"cannot be split into words: {str(error).lower()}; or write a list of strings"
    return None if words else "is an empty command"


# The grammar of image references: distribution/reference, `reference/regexp.go`, with digests
# limited to the algorithms that registries use.
_HOST_PART = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"{_HOST_PART}(?:\.{_HOST_PART})*(?::[0-9]+)?"
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = rf"(?:{_HOST}/)?{_PATH_PART}(?:/{_PATH_PART})*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}"
# PEP 508.
_DISTRIBUTION = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
# Components of a path. Excluded: separators of other languages, quotes, `$` and wildcards, which
# COPY expands, and a leading `-`, which a command would read as an option.
_PATH_CHARACTERS = r"""[^/\\"'`$*?\[\]{}<>|;&!#\s]"""
_PATH_WORD = rf"(?!-){_PATH_CHARACTERS}+(?: +{_PATH_CHARACTERS}+)*"
_NAME = r"[a-z0-9][a-z0-9._-]*"
_NAME_RULE = "lower-case letters, digits, `.`, `_` and `-`"

PROJECT = Kind("a project name", "inferno", _PATH_PART, 64, rule=_NAME_RULE)
VERSION = Kind("a version that can stand in a tag", "1.4.0", _TAG, 64)
BACKEND = Kind("a backend name", "cuda", r"[a-z][a-z0-9-]*", 32)
RUNTIME = Kind(
    "a runtime version",
    "12.8",
    r"any|[0-9][a-z0-9._-]*",
    32,
    rule="it begins with a digit; `any` is for backends without versions",
)
VARIANT = Kind("a variant name", "server", _NAME, 32, rule=_NAME_RULE)
PYTHON = Kind("a Python version", "3.12", r"3\.(?:0|[1-9][0-9]?)", 4)
#: Platforms that locks support (`locks.selection`).
PLATFORM = Kind("a platform", "linux/amd64", choices=("linux/amd64", "linux/arm64"))
RUNTIME_KEY = Kind("a name for a value", "full", r"[a-z][a-z0-9_-]*", 32)
RUNTIME_VALUE = Kind("a value of a runtime", "12.8.1", r"[A-Za-z0-9][A-Za-z0-9._+-]*", 128)
IDENTIFIER_GLOB = Kind(
    "a pattern for target identifiers", "cuda12.*-py312-*", r"[a-z0-9._*?\[\]!-]+"
)

IMAGE = Kind(
    "an image reference",
    "nvidia/cuda:12.8.1-base-ubuntu22.04",
    rf"{_REPOSITORY}(?::{_TAG})?(?:@(?:{_DIGEST}))?",
    512,
)
REPOSITORY = Kind("an image name without a tag", "ghcr.io/acme/inferno", _REPOSITORY)
TAG = Kind("an image tag", "{version}-{id}", _TAG, 128)

TAG_TEMPLATE = Kind("an image tag", "latest", r"[A-Za-z0-9_{][A-Za-z0-9_.{}-]*", 128)

PATH = Kind(
    "a path below the specification's folder",
    "requirements/base.in",
    rf"\.|(?:\./)?{_PATH_WORD}(?:/{_PATH_WORD})*/?",
    further=_path,
)
COPIED = replace(PATH, example="src")
LOCK_PATH = Kind(
    "a path of a lock",
    "locks/pylock.{id}.toml",
    rf"(?:\./)?(?:{_PATH_WORD}/)*"
    rf"(?:{_PATH_WORD}\.(?:toml|lock|txt)|(?:{_PATH_WORD})?conda-lock\.ya?ml)",
    further=_path,
)
IMAGE_PATH = Kind(
    "an absolute path in the image",
    "/app",
    rf"/(?:{_PATH_WORD}(?:/{_PATH_WORD})*/?)?",
    further=_path,
)
DISTRIBUTION = Kind("a distribution name", "xgboost", _DISTRIBUTION, 128)
EXTRA = Kind("the name of an extra", "server", _DISTRIBUTION, 128)
DEPENDENCY_GROUP = Kind("the name of a dependency group", "serve", _DISTRIBUTION, 128)
ENVIRONMENT = Kind(
    "the name of an environment of pixi",
    "cuda",
    r"[a-z0-9-]+",
    128,
    rule="lower-case letters, digits and `-`",
)
TORCH = Kind(
    "uv's name of a torch build",
    "cu128",
    r"cpu|xpu|cu[0-9]+|rocm[0-9]+(?:\.[0-9]+)*",
    32,
    rule="`cpu`, `xpu`, `cu` or `rocm` with a version",
)
FAMILY = Kind("a package family", "torch", r"[a-z0-9][a-z0-9-]*", 64)
# Without characters that a shell, a Dockerfile or TOML would read: quotes, `$`, backslash, blanks.
INDEX = Kind(
    "the URL of a package index",
    "https://wheels.example.com/simple",
    r"(?:https?|file)://[A-Za-z0-9._~:/?=%+,@&\[\]-]+",
    1024,
    _url,
)
SOURCE = Kind(
    "a web address",
    "https://github.com/acme/inferno",
    r"https?://[A-Za-z0-9._~:/?=%+,@&-]+",
    1024,
    _url,
)
# Other tools write `90` and `sm90`; such names would be missing in every image.
ARCH = Kind("a GPU architecture", "sm_90", r"(?!sm[0-9]|compute[0-9])[a-z][a-z0-9_.:+-]*", 64)
# Names and versions of Debian packages (Debian Policy 5.6.1 and 5.6.12) and of RPMs; what a base
# image takes depends on its package manager (`engines.quoting.packages`).
SYSTEM_PACKAGE = Kind(
    "the name of a system package",
    "libgomp1",
    r"[A-Za-z0-9][A-Za-z0-9+._~^:-]+(?:=[0-9][A-Za-z0-9.+_~^:-]*)?",
    200,
    _system_package,
)
PACKAGE_MANAGER = Kind("a package manager of a base image", "dnf", choices=("apt", "dnf", "zypper"))
VARIABLE = Kind("the name of an environment variable", "OMP_NUM_THREADS", r"[A-Za-z_][A-Za-z0-9_]*")
VARIABLE_GLOB = Kind("a pattern for variable names", "NVIDIA_*", r"[A-Za-z_*?][A-Za-z0-9_*?]*")
#: Labels of images: `scan` and `why` trust those that buildmatrix wrote.
IMAGE_LABEL = Kind(
    "a label key",
    "com.example.team",
    r"(?!dev\.buildmatrix\.)[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?",
    rule="`dev.buildmatrix.` is for buildmatrix",
)
LABEL = Kind("a label key", "com.example.team", r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
USER = Kind("the name of a user without special rights", "app", r"(?!root$)[a-z_][a-z0-9_-]*", 32)
GROUP = Kind("a group name", "video", r"[a-z_][a-z0-9_-]*", 32)
RUNNER = Kind("the label of a CI runner", "ubuntu-24.04-arm", r"[A-Za-z0-9][A-Za-z0-9._-]*", 128)
NODE_CLASS = Kind("the name of a node class", "mi300", _NAME, 64, rule=_NAME_RULE)
#: PEP 440 accepts the versions of all known drivers and kernels: `550.54.14`, `1.21.0.rc2`.
DRIVER = Kind(
    "a driver version or a range",
    ">=570",
    r"[0-9<>=!~][A-Za-z0-9.,<>=!~+* -]*",
    64,
    _range_or_value,
)
KERNEL = Kind(
    "a kernel version or a range",
    ">=6.8",
    r"[0-9<>=!~][A-Za-z0-9.,<>=!~+*_ -]*",
    64,
    _range_or_value,
)
PRODUCT = Kind("the name of a product", "NVIDIA-H100-80GB-HBM3", limit=128)
INTERCONNECT = Kind("the name of an interconnect", "nvlink", r"[a-z0-9][a-z0-9._-]*", 32)
PARTITION = Kind(
    "a MIG profile or a partition mode", "1g.10gb", r"[A-Za-z0-9][A-Za-z0-9.+/_-]*", 64
)
CONTAINER_RUNTIME = Kind(
    "a container runtime",
    "containerd 1.7.27",
    r"[a-z0-9][a-z0-9._-]*(?: [0-9][A-Za-z0-9.+~_-]*)?",
    64,
)
#: The x86-64 psABI, "Micro-Architecture Levels".
CPU_LEVEL = Kind(
    "an instruction level",
    "x86-64-v3",
    choices=("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
)
RESOURCE = Kind(
    "the name of a Kubernetes resource", "nvidia.com/gpu", r"[A-Za-z0-9][A-Za-z0-9./_-]*", 128
)
TOLERATION = Kind(
    "a taint",
    "nvidia.com/gpu=present:NoSchedule",
    r"[A-Za-z0-9][A-Za-z0-9./_-]*(?:=[A-Za-z0-9._-]*)?(?::(?:NoSchedule|PreferNoSchedule|NoExecute))?",
    256,
)
CDI_DEVICE = Kind(
    "a CDI device",
    "nvidia.com/gpu=all",
    r"[A-Za-z0-9][A-Za-z0-9./_-]*=[A-Za-z0-9][A-Za-z0-9:._-]*",
    128,
)
DIGESTED_IMAGE = Kind(
    "an image reference with a digest",
    f"ghcr.io/acme/inferno@sha256:{'0' * 64}",
    rf"{_REPOSITORY}(?::{_TAG})?@(?:{_DIGEST})",
    512,
)
SETTING = Kind("the name of a setting", "archs", r"[a-z][a-z-]*", 32)
SUBSET = Kind("the name of a subset", "pr", _NAME, 64, rule=_NAME_RULE)
SMOKE = Kind("the name of a smoke command", "warmup", r"[A-Za-z0-9][A-Za-z0-9._-]*", 64)
LEVEL = Kind("a smoke level", "import", choices=("import", "device", "batch"))
CONDITION = Kind("a value or a version range", ">=3.12", further=_range_or_value)
SERVICE = Kind("an advisory service", "osv", choices=("pypi", "osv"))
SEVERITY = Kind("a severity", "warning", choices=("error", "warning", "note"))
GATE = Kind("a gate", "smoke", choices=("lock", "build", "scan", "smoke"))
DISTRIBUTION_RANGE = Kind(
    "a distribution, with a range of versions or without",
    "xgboost<3",
    r"[A-Za-z0-9*?][A-Za-z0-9._*?-]*(?: ?[<>=!~].*)?",
    200,
    _distribution_range,
)
LICENSE = Kind(
    "an SPDX license identifier or a pattern for some",
    "GPL-3.0-only",
    r"[A-Za-z0-9*][A-Za-z0-9.+*-]*(?: [Ww][Ii][Tt][Hh] [A-Za-z0-9.+*-]+)?",
    128,
    _license,
    rule="one license, with its exception; alternatives are entries of their own",
)
TARGETS = Kind(
    "a backend or a pattern for target identifiers", "cuda*-server", r"[a-z0-9._*?\[\]!-]+"
)
PINNED = Kind("a way to pin images", "digest", choices=("digest", "tag", "none"))
POLICY_SEVERITY = Kind("a severity", "warning", choices=("error", "warning", "note", "off"))
ADVISORY = Kind("the name of an advisory", "CVE-2024-22195", r"[A-Za-z0-9][A-Za-z0-9._:-]*", 100)
#: Those above `static`, whose findings have waivers of their own (`matrix.model.RUNGS`).
RUNG = Kind(
    "a rung of `preflight`",
    "import",
    choices=("import", "device", "compute", "collective", "batch", "memory", "cold-start"),
)
CHECK_GLOB = Kind("a pattern for checks", "torchtext.*", limit=MAX_TEXT)
RULE = Kind("the code of a rule", "BM401", r"BM[0-9]{3}")
TEXT = Kind("a text", "why it is so", limit=MAX_TEXT)
OWNER = Kind("a person or a team", "ml-platform", limit=MAX_TEXT)
DISTRIBUTION_GLOB = Kind("a pattern for distribution names", "bitsandbytes*")
FILE_GLOB = Kind("a pattern for paths", "*/libbitsandbytes_cuda*.so", limit=MAX_TEXT)
SONAME_GLOB = Kind("a pattern for library names", "libcuda.so.1")
ARGUMENT = Kind("a word of a command", "python", limit=MAX_TEXT, may_be_empty=True)
VALUE = Kind("a value", "1", limit=MAX_TEXT, may_be_empty=True)
COMMAND = Kind(
    "a command",
    "python -m inferno",
    limit=MAX_TEXT,
    further=_command,
    convert=lambda text: tuple(shlex.split(text)),
)
LATEST = Kind("an axis to keep the latest of", "runtime", choices=("runtime",))
INHERIT = Kind("a way to inherit", "append", choices=("append", "replace"))
SIZE = Kind(
    "a size", "3GB", r"[0-9]{1,9}(?:\.[0-9]{1,3})? ?(?:B|[kKMGT]B|[KMGT]iB)", 20, convert=size
)
#: Not zero: every command takes some time.
DURATION = Kind(
    "a duration",
    "180s",
    r"(?=[0-9.]*[1-9])[0-9]{1,6}(?:\.[0-9]{1,3})?(?:ms|s|m|h)",
    12,
    convert=seconds,
)
