"""Runtime lines: which toolkit a runtime belongs to, and what a local version was built for."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d{1,9}")
_LOCAL = re.compile(r"[a-z]+\.?(\d{1,9})(?:\.(\d{1,9}))?")


def toolkit_line(runtime: str) -> str | None:
    """The toolkit line of a runtime: `12` for `12.8`, `2025` for `2025.0`, None for `any`.

    Within a line, libraries keep their sonames and run on newer minors (NVIDIA: "CUDA minor
    version compatibility"); across lines they do not.
    """
    match = _NUMBER.match(runtime)
    return match[0] if match else None


def built_for(local: str) -> str | None:
    """The runtime in a local version (PEP 440): `12.8` for `cu128`, `6.4` for `rocm6.4`.

    Without a dot the last digit is the minor, as the PyTorch project writes it. None where the
    local version holds no number of that kind (`cpu`, `xpu`).
    """
    match = _LOCAL.match(local)
    if match is None:
        return None
    major, minor = match[1], match[2]
    if minor is not None:
        return f"{major}.{minor}"
    return f"{major[:-1]}.{major[-1]}" if len(major) > 1 else major
