"""Contents of a wheel, an image or a tree, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from buildmatrix.phrases import count, listing, size
from buildmatrix.reports.inspect.model import Contents, Share

#: Distributions that are listed by name; JSON has all.
_SHOWN = 20
#: Architectures of a vendor's share that stand in its line; the list of them has all.
_ARCHITECTURES = 12
#: Characters of an instruction.
_INSTRUCTION = 120


def lists(contents: Contents) -> Iterator[tuple[str, list[str]]]:
    """Titles and lines; what there is nothing of is left out."""
    yield (
        "by vendor and role",
        [share_line(share) for share in contents.shares] or ["nothing of a vendor"],
    )
    if len(contents.distributions) > 1:
        yield "by distribution", list(_distributions(contents))
    if contents.layers:
        yield "by layer", list(_layers(contents))
    if contents.architectures:
        yield _title(contents), list(_architectures(contents))


def share_line(share: Share) -> str:
    """One vendor in one role."""
    names = listing(share.architectures, _ARCHITECTURES, " ")
    return (
        f"{share.vendor} {share.role} ({share.backend}): "
        + (f"{size(share.size)} in " if share.size else "linked statically into ")
        + count(share.files, "file")
        + (f"; {names}" if names else "")
    )


def _distributions(contents: Contents) -> Iterator[str]:
    for item in contents.distributions[:_SHOWN]:
        name = f"{item.name} {item.version}" if item.name else "owned by no distribution"
        yield f"{name}  {size(item.size)}{_backends(item.backends)}"
    rest = contents.distributions[_SHOWN:]
    if rest:
        yield f"and {len(rest)} more with {size(sum(item.size for item in rest))}"


def _layers(contents: Contents) -> Iterator[str]:
    for number, layer in enumerate(contents.layers, 1):
        text = (
            " ".join(layer.instruction.split()) or "an instruction that the image does not record"
        )
        text = text if len(text) <= _INSTRUCTION else text[: _INSTRUCTION - 4] + " ..."
        hidden = f", {size(layer.hidden)} of it hidden by later layers" if layer.hidden else ""
        yield f"{number}  {size(layer.size)}{hidden}{_backends(layer.backends)}: {text}"


def _backends(backends: Mapping[str, int]) -> str:
    parts = [f"{name} {size(bytes_)}" for name, bytes_ in backends.items() if bytes_]
    return f" ({', '.join(parts)})" if parts else ""


def _title(contents: Contents) -> str:
    title = "device code by architecture"
    return title if contents.machines is None else f"{title}, for {contents.machines.name}"


def _architectures(contents: Contents) -> Iterator[str]:
    useless = sum(item.size for item in contents.architectures if item.use == "none")
    for item in contents.architectures:
        use = _LINKED if item.use == "jit" and item.kind == "lto-ir" else _USE[item.use]
        name = f"{item.backend} {item.arch or 'architecture unknown'} {item.kind}"
        yield f"{name}  {size(item.size)} in {count(item.files, 'file')}{use}"
    if useless:
        yield f"{size(useless)} in all are of no use there"


_USE = {
    "": "",
    "native": "",
    "jit": ": compiled by the driver when a program starts",
    "none": ": of no use there",
}
#: Intermediate code of link-time optimization, which the driver itself does not compile.
_LINKED = ": compiled when a program links it at run time"
