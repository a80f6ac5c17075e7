"""Choose the entry of an index that engines run on a platform.

Engines differ. containerd, Docker and BuildKit normalize platforms and fall back to what the same
processor can run (`normalizeArch` and `platformVector` of github.com/containerd/platforms 1.0).
podman, skopeo and CRI-O compare the words as they are written (`WantedPlatforms` and
`chooseInstance` of github.com/containers/image 5.36). All take an entry without a platform if no
other fits. An entry is chosen if no engine runs another one; annotations decide nothing.
`tests/fuzz/image_differences.py` compares this with both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from buildmatrix.errors import UndecidedError
from buildmatrix.oci.documents import Descriptor, Platform
from buildmatrix.phrases import listing
from buildmatrix.text import printable

#: Variants by podman's `compatibility`: each also accepts the later ones.
_COMPATIBLE = {"arm": ("v8", "v7", "v6", "v5"), "arm64": ("v8",)}
#: The first minor version of arm64's architecture 8 that one of 9 runs: v9.2 runs v8.7.
_ARM64_9_RUNS_8 = 5

#: One step of an engine's search: platforms of equal rank.
_Step = frozenset[tuple[str, str, str]]


def images_in(entries: Iterable[Descriptor]) -> tuple[Descriptor, ...]:
    """Return the entries that may be run somewhere: all but attestations of BuildKit.

    Those have the platform `unknown/unknown`, which no machine has. Annotations are ignored.
    """
    unknown = Platform(os="unknown", architecture="unknown")
    return tuple(entry for entry in entries if entry.platform != unknown)


def is_unnamed(entry: Descriptor) -> bool:
    """Return True if an entry states no platform: Docker reads its configuration."""
    return entry.platform is None or not (entry.platform.os or entry.platform.architecture)


def choose(entries: Sequence[Descriptor], wanted: Platform, where: str) -> Descriptor | None:
    """Return the entry that engines run on a platform; None if no engine runs any.

    Raises `UndecidedError`, which names the entries, if it depends on the engine.
    """
    unnamed = [entry for entry in entries if is_unnamed(entry)]
    named = [entry for entry in entries if not is_unnamed(entry)]
    own = wanted.normalized()
    # containerd's package skips entries with features since its version 1.0.
    plain = [entry for entry in named if entry.platform and not entry.platform.os_features]
    searches = (
        _first_match(named, _containerd_steps(own)),
        _first_match(plain, _containerd_steps(own)),
        _first_match(named, _podman_steps(own, wanted.variant), is_exact=True),
        _first_match(named, _podman_steps(own, own.variant), is_exact=True),
    )
    distinct = {entry.digest: entry for found in searches for entry in found or unnamed}
    if len(distinct) > 1:
        raise UndecidedError(
            f"{where} has several images that engines may run on {wanted}: "
            f"{_format_entries(distinct.values())}; name one by its digest"
        )
    for entry in distinct.values():
        platform = own if is_unnamed(entry) or entry.platform is None else entry.platform
        if platform.normalized().architecture != own.architecture:
            other = printable(str(platform))
            raise UndecidedError(
                f"{where} has no image for {wanted}: containerd runs the one for {other} there, "
                f"and podman none; give --platform {other} to judge that"
            )
        return entry
    return None


def check_configuration(entry: Descriptor, wanted: Platform, configured: Platform) -> None:
    """Raise `UndecidedError` if a chosen entry and its image's configuration disagree.

    Engines use the platform in the index; containerd reads the configuration if there is none.
    """
    if not configured.os and not configured.architecture:
        return
    if is_unnamed(entry) or entry.platform is None:
        if not wanted.runs(configured):
            raise UndecidedError(
                f"{entry.digest} has no platform in its index, and its configuration says "
                f"{printable(str(configured))}: whether it runs on {wanted} depends on the engine"
            )
        return
    one, other = entry.platform.normalized(), configured.normalized()
    if (one.os, one.architecture) != (other.os, other.architecture) or (
        entry.platform.variant and configured.variant and one.variant != other.variant
    ):
        raise UndecidedError(
            f"the index says that {entry.digest} is for {printable(str(entry.platform))}, and its "
            f"configuration says {printable(str(configured))}"
        )


def _first_match(
    entries: Iterable[Descriptor], steps: Iterable[_Step], *, is_exact: bool = False
) -> list[Descriptor]:
    """Return the entries that fit the first step that any fits."""
    fitting: dict[tuple[str, str, str], list[Descriptor]] = {}
    for entry in entries:
        if entry.platform is not None:
            platform = entry.platform if is_exact else entry.platform.normalized()
            fitting.setdefault(_platform_key(platform), []).append(entry)
    for step in steps:
        if found := [entry for words in sorted(step) for entry in fitting.get(words, ())]:
            return found
    return []


def _platform_key(platform: Platform) -> tuple[str, str, str]:
    return platform.os, platform.architecture, platform.variant


def _containerd_steps(wanted: Platform) -> Iterator[_Step]:
    """Yield normalized platforms in the order of `platforms.Only`."""
    for architecture, variant in _containerd_vector(wanted.architecture, wanted.variant):
        step = Platform(os=wanted.os, architecture=architecture, variant=variant)
        yield frozenset({_platform_key(step.normalized())})


def _containerd_vector(architecture: str, variant: str) -> Iterator[tuple[str, str]]:
    number = variant.removeprefix("v")
    version = int(number) if number.isascii() and number.isdigit() and len(number) < 3 else 0
    if architecture == "arm64":
        major, _, minor = (variant or "v8").removeprefix("v").partition(".")
        highest = {"8": 9, "9": 7}.get(major, -1)
        if not (minor or "0").isascii() or not (minor or "0").isdigit() or len(minor) > 1:
            return
        lowest = int(minor or 0)
        if lowest > highest:
            return
        levels = [(major, lowest)]
        if major == "9":
            levels.append(("8", min(lowest + _ARM64_9_RUNS_8, 9)))
        for level, last in levels:
            for number in map(str, range(last, -1, -1)):
                yield "arm64", f"v{level}" if number == "0" else f"v{level}.{number}"
        yield from _containerd_vector("arm", "v8")
        return
    yield architecture, variant
    lowest = {"amd64": 1, "arm": 5}.get(architecture, version)
    for lower in range(version - 1, lowest - 1, -1):
        yield architecture, f"v{lower}"
    if architecture == "amd64":
        yield "386", ""


def _podman_steps(wanted: Platform, variant: str) -> Iterator[_Step]:
    """Yield platforms in the order of `WantedPlatforms`."""
    known = _COMPATIBLE.get(wanted.architecture, ())
    variants: tuple[str, ...] = ("", *known)
    if variant:
        start = known.index(variant) if variant in known else None
        variants = (*(known[start:] if start is not None else (variant,)), "")
    if wanted.architecture == "arm64" and variant in ("", "v8"):
        # Which of the two comes first depends on the machine.
        yield frozenset({(wanted.os, "arm64", ""), (wanted.os, "arm64", "v8")})
        return
    for one in variants:
        yield frozenset({(wanted.os, wanted.architecture, one)})


def _format_entries(entries: Iterable[Descriptor]) -> str:
    return listing(
        f"{entry.digest} for {'any' if is_unnamed(entry) else printable(str(entry.platform))}"
        for entry in entries
    )
