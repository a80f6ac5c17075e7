"""Which wheels a target can load: uv's platform name from the target's platform and base image."""

from __future__ import annotations

import re

from buildmatrix.errors import UndecidedError
from buildmatrix.spec.model import Target

#: Platforms that wheels can be locked for, and the machine that their names have.
PLATFORMS = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}

#: Word in an image reference → minor version of that distribution's glibc 2.x. First match wins.
#: Source: the `libc6` or `glibc` package of each release, read 2026-11.
_GLIBC = (
    (r"ubuntu[-_:]?2[56]\.|trixie|debian[-_:]?13|questing|plucky", 41),
    (r"ubuntu[-_:]?24\.04|noble|fedora[-_:]?40|ubi10", 39),
    (r"bookworm|debian[-_:]?12", 36),
    (r"ubuntu[-_:]?22\.04|jammy", 35),
    (r"ubi9|rockylinux[-_:]?9|almalinux[-_:]?9", 34),
    (r"ubuntu[-_:]?20\.04|focal|bullseye|debian[-_:]?11", 31),
    (r"ubi8|rockylinux[-_:]?8|almalinux[-_:]?8", 28),
)
_GLIBC_UNKNOWN = 35
#: uv names no newer one; wheels for a later glibc are not published yet either.
_GLIBC_NEWEST = 40

#: Patch that no Python has reached; the highest so far is 3.8.20.
_LATE_PATCH = "99"


def python_platform(target: Target) -> str:
    """Uv's `--python-platform` for the final image of `target`, `x86_64-manylinux_2_35`.

    The glibc is guessed from the name of the final base image. An unknown name counts as
    glibc 2.35 (Ubuntu 22.04), which every GPU vendor's current images have or exceed.
    Raises `UndecidedError` for a platform that uv cannot resolve for.
    """
    if target.platform not in PLATFORMS:
        platforms = " and ".join(PLATFORMS)
        raise UndecidedError(
            f"{target.id}: no wheels can be locked for platform `{target.platform}`; "
            f"the platforms that can be are {platforms}."
        )
    return f"{machine(target)}-manylinux_2_{glibc_minor(target)}"


def machine(target: Target) -> str:
    """Machine of the target's platform as wheels and markers name it; empty for an unknown one."""
    return PLATFORMS.get(target.platform, "")


def glibc_minor(target: Target) -> int:
    """Minor version of the glibc 2.x that `target` has, guessed as for `python_platform`."""
    return min(_glibc_minor(target.base.final), _GLIBC_NEWEST)


def marker_environment(target: Target) -> dict[str, str]:
    """The environment markers (PEP 508) of `target` that a requirement line may ask for."""
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine(target),
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": "linux",
    }


def installed_environment(target: Target) -> dict[str, str]:
    """The markers that an installer in the target's image asks for.

    A lock is resolved for the first patch of a Python, and installed with the one that the base
    has: what its tag says, else a late one.
    """
    named = re.search(rf":{re.escape(target.python)}\.(\d+)\b", target.base.final)
    patch = named[1] if named else _LATE_PATCH
    return {**marker_environment(target), "python_full_version": f"{target.python}.{patch}"}


def _glibc_minor(image: str) -> int:
    for pattern, minor in _GLIBC:
        if re.search(pattern, image.lower()):
            return minor
    return _GLIBC_UNKNOWN
