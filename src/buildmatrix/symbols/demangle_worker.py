"""`python -m buildmatrix.symbols.demangle_worker`: names of C++ and Rust as people write them.

Reads a JSON list of names from standard input and writes one of the same length. A process of its
own, for the reasons that `lief_worker` has: the names are hostile, and what reads them is native.
"""

from __future__ import annotations

import json
import resource
import sys

#: Bytes of address space, and seconds of processor time.
MEMORY, SECONDS = 2 << 30, 20


def main() -> None:
    """Demangle what comes in; a name that is not mangled comes back as it is."""
    for what, limit in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (limit, limit))
    import lief

    lief.logging.disable()
    told = []
    for name in json.load(sys.stdin):
        symbol = lief.ELF.Symbol()
        symbol.name = name
        told.append(str(symbol.demangled_name) or name)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
