"""Names as people and tools write them, brought into the form in which the catalogue has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")

_WILDCARD = re.compile(r"[*?\[]")
#: auditwheel (`repair.py`): `name.split(".", 1)`, then `base-<8 hex digits>.ext`.
_DASH = re.compile(r"(?P<stem>.+)-[0-9a-f]{8}(?P<rest>(?:\.\w+)*?\.so(?:\..+)?)")
#: torchvision's own bundling: `libcudart.faf08d9a.so.13`.
_DOT = re.compile(r"(?P<stem>.+)\.[0-9a-f]{8}(?P<rest>\.so(?:\..+)?)")


def demangle(name: str) -> str:
    """The file name that a library had before a wheel builder put a piece of its hash into it.

    `libcudart-9335f6a2.so.12` and `libcudart.782fcab0.so.12` are both `libcudart.so.12`. Other
    names come back as they are.
    """
    if ".so" not in name:
        return name
    match = _DASH.fullmatch(name) or _DOT.fullmatch(name)
    return match["stem"] + match["rest"] if match else name


def library_names(name: str) -> Iterator[str]:
    """`name` without a wheel builder's hash, then with one version component less each time.

    The last one ends in `.so`. What is no name of a shared library comes once.
    """
    name = demangle(name)
    yield name
    stem, separator, version = name.rpartition(".so.")
    if separator:
        components = version.split(".")
        for count in range(len(components) - 1, 0, -1):
            yield f"{stem}.so.{'.'.join(components[:count])}"
        yield f"{stem}.so"


def library_patterns(glob: str) -> tuple[str, ...]:
    """What a library's glob is in the form that meets `library_names`.

    A glob with a version also stands for the library without one, so that it is known in the next
    version too; the longer form comes first in `library_names` and is the more exact one.
    """
    for any_version in (".so.*", ".so*"):
        if glob.endswith(any_version):
            return (glob.removesuffix(any_version) + ".so",)
    stem, separator, _ = glob.rpartition(".so.")
    return (glob, f"{stem}.so") if separator else (glob,)


def version_of(name: str) -> str:
    """The version in the name of a library (`12.8` of `libcudart.so.12.8`), or nothing."""
    return demangle(name).rpartition(".so.")[2] if ".so." in name else ""


#: What stands between the words of a product's name, and marks behind them: `Intel(R) Arc(TM)`.
_BETWEEN = re.compile(r"(?:[\s_/-]|\((?:R|TM)\))+", re.IGNORECASE)


@lru_cache(maxsize=4096)
def product_words(name: str) -> str:
    """The name of a product as all who write it have it.

    NVIDIA's tools say `NVIDIA H100 PCIe`, Kubernetes labels `NVIDIA-H100-PCIe`; AMD's labels have
    `AMD_Instinct_MI300X_OAM`.
    """
    return _BETWEEN.sub("-", name.casefold()).strip("-")


@lru_cache(maxsize=4096)
def product_patterns(glob: str) -> tuple[str, ...]:
    """What a product's glob is in the form of `product_words`; with more words behind it, too."""
    words = product_words(glob)
    return (words,) if words.endswith("*") else (words, f"{words}-*")


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


#: Calls in Python that look for a library by its bare name: `cuda` for `libcuda.so`.
_BARE_NAMES = ("find_library", "load_nvidia_dynamic_lib")


def opened_library(call: str, text: str) -> str | None:
    """The file name of the library that a call in Python means; None for what is no library.

    `call` and `text` as in `facts.inventory.model.PythonLoad`: `cudart` in
    `load_nvidia_dynamic_lib` is `libcudart.so`, and `torchvision::nms` is an operator.
    """
    if "::" in text:
        return None
    name = demangle(text.rpartition("/")[2])
    return f"lib{name}.so" if call in _BARE_NAMES and ".so" not in name else name


def matches(glob: str, text: str) -> bool:
    """Whether the whole of `text` fits `glob`; upper and lower case differ."""
    return glob == "*" or glob == text or _compiled(glob).match(text) is not None


def matches_any(globs: Iterable[str], text: str) -> bool:
    """Whether `text` fits one of `globs`."""
    return any(matches(glob, text) for glob in globs)


#: Texts whose values an index remembers.
_REMEMBERED = 10_000


class GlobIndex(Generic[T]):
    """Values by glob. A look-up costs a few dictionary accesses, however many globs there are.

    Globs without a wildcard are keys of one dictionary. The others stand under what they begin
    with, so that only those are tried whose beginning is the beginning of the text.
    """

    def __init__(self, items: Iterable[tuple[str, T]]) -> None:
        self._exact: dict[str, list[T]] = {}
        self._beginnings: dict[str, list[tuple[str, T]]] = {}
        for glob, value in items:
            wildcard = _WILDCARD.search(glob)
            if wildcard is None:
                self._exact.setdefault(glob, []).append(value)
            else:
                beginning = glob[: wildcard.start()]
                self._beginnings.setdefault(beginning, []).append((glob, value))
        self._lengths = sorted({len(beginning) for beginning in self._beginnings}, reverse=True)
        self._remembered: dict[str, Sequence[T]] = {}

    def find(self, text: str) -> Sequence[T]:
        """The values of all globs that fit `text`, the most exact glob first."""
        values = self._remembered.get(text)
        if values is None:
            # The same names come back in every binary of every target. Others may be made up by
            # the thousand, so the memory ends.
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            values = self._remembered[text] = self._find(text)
        return values

    def _find(self, text: str) -> Sequence[T]:
        values = list(self._exact.get(text, ()))
        for length in self._lengths:
            fitting = [
                (glob, value)
                for glob, value in self._beginnings.get(text[:length], ())
                if len(text) >= length and _compiled(glob).match(text)
            ]
            fitting.sort(key=lambda item: -len(item[0]))
            values += [value for _, value in fitting]
        return values
