"""Programs of others that judge what we write, out of Debian's newer suites.

bookworm has none of them. They need libc alone, so they are unpacked and never installed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from . import apt
from .layout import Layout
from .process import output
from .progress import say

# Package and program have one name; the argument makes it say which it is.
_PROGRAMS = {"cosign": "version", "crane": "version", "oras": "version"}


def path(layout: Layout, name: str) -> Path:
    """Where a program lies once `ensure` was called."""
    return layout.cache / "judges" / name / "usr/bin" / name


def ensure(layout: Layout) -> None:
    """Unpack what is missing or does not run."""
    for name, argument in _PROGRAMS.items():
        program = path(layout, name)
        if program.exists() and output([program, argument]) is not None:
            continue
        archive = apt.archive(apt.NEWER_SUITES, layout)
        package = archive.newest(name, apt.runs_on_this_libc)
        say(f"judges: downloading {name} {package.version}")
        draft = Path(tempfile.mkdtemp(dir=layout.drafts))
        for deb in archive.download([package]):
            apt.unpack(deb, draft)
            deb.unlink()
        folder = program.parents[2]
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft.replace(folder)
