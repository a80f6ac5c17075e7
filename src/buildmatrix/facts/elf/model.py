"""The facts of one ELF object. Nothing in here knows a vendor.

Names follow the System V gABI, chapters 4 and 5, and the LSB where it extends them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """One named section; offset and size in bytes, size 0 on disk for `nobits`."""

    name: str
    offset: int
    size: int
    nobits: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """A string in read-only data or code that looks like the name of a shared library."""

    text: str
    offset: int
    section: str | None = None
    #: The name, or a path that ends with it, is a whole NUL-terminated string; False for a part of
    #: a sentence, of source text, or of a string table without NUL.
    exact: bool = False
    #: Other letters stand directly behind it, as in the string tables of Rust and Go, where only
    #: code knows where a string ends. Where an unversioned name ends is a guess then.
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A known byte sequence: proof that something was linked statically."""

    #: Name in the table of marks (`facts.elf.search`), for example `cudart-error-string`.
    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """The symbol versions that an object needs of one library: `GLIBC_2.17`, `libcudart.so.12`."""

    library: str
    versions: tuple[str, ...]
    #: Versions of these that may be missing (VER_FLG_WEAK).
    weak: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SymbolNeed:
    """Symbols that another object must define, all of one version or of none."""

    names: tuple[str, ...]
    #: The version, and the library that had it when the object was linked.
    version: str | None = None
    library: str | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """The symbols of one object that the loader binds."""

    #: In the order of the dynamic symbol table; see `facts.elf.symbols.read_binding` for those left
    #: out.
    needs: tuple[SymbolNeed, ...] = ()
    #: GNU hashes of the symbols that it defines, 32 bits each, little-endian, in Base64. Their
    #: lowest bits mean nothing.
    exports: str = ""


@dataclass(frozen=True, slots=True)
class DlopenNote:
    """Libraries that an object says it loads by itself, in a note made for that.

    Source: https://systemd.io/ELF_DLOPEN_METADATA.
    """

    #: Names for one library, tried in this order.
    sonames: tuple[str, ...]
    feature: str | None = None
    #: `required`, `recommended` or `suggested`.
    priority: str = "recommended"


@dataclass(frozen=True, slots=True)
class Undefined:
    """A symbol that another object must define."""

    name: str
    #: The needed version, and the library that has to define it; None where versions are not used.
    version: str | None = None
    library: str | None = None
    #: The loader continues if no library defines it.
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbols of one ELF object, for a person to read."""

    #: In the order of the dynamic symbol table.
    undefined: tuple[Undefined, ...] = ()
    #: Names that others can link to.
    defined: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
