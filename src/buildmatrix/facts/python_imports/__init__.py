"""Reach of Python imports, from source text alone: nothing is run."""

from __future__ import annotations

from typing import Literal

#: Reach of a library for the import of a distribution's top-level packages: `import` it is loaded,
#: and the import fails without it; `chosen` a run decides which of several files is loaded, and the
#: import fails if none can be (they have `reached_from` in common); `guarded` it is loaded or
#: tried, and the import continues without it (a try, or a condition that a run decides); `lazy`
#: only a call, or the import of a submodule, loads it; `unknown` nothing in the Python files names
#: it.
Reach = Literal["import", "chosen", "guarded", "lazy", "unknown"]
