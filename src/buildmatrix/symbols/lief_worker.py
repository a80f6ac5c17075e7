"""`python -m buildmatrix.symbols.lief_worker FILE`: imported symbols of an ELF file, as JSON.

A process of its own, because LIEF is native code and the bytes it parses are hostile: what goes
wrong in here ends only this process. The parent sets the time limit.
"""

from __future__ import annotations

import json
import sys

from buildmatrix.symbols.limits import limit_process

#: Bytes of address space. LIEF reads the whole file; 434 MB of libtorch take 0.7 GB.
MEMORY = 6 << 30
#: Bytes of the answer, and of any other file: the 120,000 symbols of libtorch_cpu have 20 MB.
ANSWER = 256 << 20
#: Seconds of processor time, should the parent be gone.
SECONDS = 120
#: SHN_UNDEF: the symbol is defined elsewhere.
_UNDEFINED = 0


def main(path: str) -> None:
    """Print `{"imports": [[library or null, [symbol, ...]], ...]}`."""
    limit_process(memory=MEMORY, seconds=SECONDS, file_size=ANSWER)
    import lief

    lief.logging.disable()
    options = lief.ELF.ParserConfig()
    options.parse_relocations = False
    options.parse_symtab_symbols = False
    options.parse_notes = False
    options.parse_overlay = False
    binary = lief.ELF.parse(path, options)
    if binary is None:
        sys.exit("LIEF takes it for no ELF file")
    # vna_other: the number that symbols have in the version table (LSB 5.0, 10.7).
    owners = {
        version.other: need.name
        for need in binary.symbols_version_requirement
        for version in need.get_auxiliary_symbols()
    }
    symbols: dict[str | None, set[str]] = {}
    for symbol in binary.dynamic_symbols:
        # Not `symbol.imported`, which leaves out symbols without a type: most are.
        if symbol.shndx != _UNDEFINED or not symbol.name:
            continue
        version = symbol.symbol_version
        library = owners.get(version.value & 0x7FFF) if version is not None else None
        symbols.setdefault(library, set()).add(str(symbol.demangled_name or symbol.name))
    rows = [
        [library, sorted(symbols[library])]
        for library in sorted(symbols, key=lambda name: name or "~")
    ]
    json.dump({"imports": rows}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
