"""How far an import gets."""

from __future__ import annotations

from typing import Literal

#: How far the import of a distribution's top-level packages gets to a library:
#: `import` it is loaded, and the import fails without it; `chosen` a run decides which one of
#: several files is loaded, and the import fails when none can be (they have `reached_from` in
#: common); `guarded` it is loaded or tried, and the import goes on without it (a try, or a
#: condition that a run decides); `lazy` only a call, or the import of a submodule, loads it;
#: `unknown` nothing in the Python files names it.
Reach = Literal["import", "chosen", "guarded", "lazy", "unknown"]
