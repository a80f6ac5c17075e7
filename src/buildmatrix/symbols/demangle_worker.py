"""`python -m buildmatrix.symbols.demangle_worker`: names of C++ and Rust as people write them.

Reads a JSON list of names from standard input and writes one of the same length. A process of its
own, for the reasons that `lief_worker` has: the names are hostile, and what reads them is native.
"""

from __future__ import annotations

import json
import sys

from buildmatrix.symbols.limits import limit_process

#: Bytes of address space, and seconds of processor time.
MEMORY, SECONDS = 2 << 30, 20


def main() -> None:
    """Demangle what comes in; a name that is not mangled comes back as it is."""
    limit_process(memory=MEMORY, seconds=SECONDS)
    import lief

    lief.logging.disable()
    names = []
    for name in json.load(sys.stdin):
        symbol = lief.ELF.Symbol()
        symbol.name = name
        names.append(str(symbol.demangled_name) or name)
    json.dump(names, sys.stdout)


if __name__ == "__main__":
    main()
