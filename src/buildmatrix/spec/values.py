"""Values of settings that are well written, and that no image can do with."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.utils import canonicalize_name

from buildmatrix.spec.document import Problems
from buildmatrix.spec.keys_settings import TargetSettings
from buildmatrix.spec.shapes import SourceText

#: Where the built-in templates put the interpreter (templates/base.Dockerfile.j2).
PROGRAMS = "/opt/venv/bin"


def check_values(settings: TargetSettings, problems: Problems) -> None:
    """Note what would break the image, or mean nothing, without any step saying so."""
    _check_environment(settings.env or {}, problems)
    _check_replacements(settings.replace or {}, problems)


def _check_environment(env: Mapping[str, SourceText], problems: Problems) -> None:
    for name, text in env.items():
        if not text.sound:
            continue
        if re.search(rf"\$(?:{name}\b|{{{name}}})", text.value):
            problems.add(
                text.at,
                f"`{name}` names itself, and nothing in `env` is expanded",
                "write the whole value",
            )
        elif name == "PATH" and PROGRAMS not in text.value.split(":"):
            problems.add(
                text.at,
                f"this PATH leaves out `{PROGRAMS}`, where the image's Python is",
                f"write `{PROGRAMS}:/usr/local/bin:/usr/bin:/bin` and what you add",
            )
        elif name == "PYTHONHOME":
            problems.add(
                text.at,
                "PYTHONHOME would keep the image's Python from finding its own modules",
                "take it out; PYTHONPATH adds folders",
            )


def _check_replacements(replace: Mapping[str, SourceText], problems: Problems) -> None:
    seen: dict[str, str] = {}
    for name, text in replace.items():
        key = canonicalize_name(name)
        if text.sound and canonicalize_name(text.value) == key:
            problems.add(text.at, f"`{name}` is replaced by itself", "take this entry out")
        if key in seen:
            message = f"`{seen[key]}` and `{name}` are one distribution, replaced twice"
            problems.add(text.at, message, "keep one of the two")
        seen[key] = name
