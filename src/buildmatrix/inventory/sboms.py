"""Components built into a distribution, from the SBOMs in its metadata folder.

Formats: PEP 770 (`.dist-info/sboms/`), CycloneDX JSON (`components`), SPDX 2 JSON (`packages`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from buildmatrix.inventory.listing import Listing

#: Size limit of one SBOM; that of a large Rust program has a few hundred kilobytes.
LARGEST = 8 << 20
#: SBOMs of one distribution, and components of all of them.
MOST_FILES = 64
MOST_COMPONENTS = 10_000
#: CycloneDX nests components in components.
_DEEPEST = 16


def read_components(listing: Listing, folder: str) -> tuple[str, ...]:
    """Return the package URLs of all components, sorted; failures are noted in `listing`."""
    paths = listing.below(f"{folder}/sboms")
    purls: dict[str, None] = {}
    for path in paths[:MOST_FILES]:
        data = listing.read(path, LARGEST)
        if data is None:
            continue
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            listing.note(path, "no JSON, which CycloneDX and SPDX would be")
            continue
        for purl in _find_purls(document, 0):
            if len(purls) >= MOST_COMPONENTS:
                listing.note(path, f"more than {MOST_COMPONENTS} components: the rest was left out")
                break
            purls[purl] = None
    if len(paths) > MOST_FILES:
        listing.note(f"{folder}/sboms/", f"more than {MOST_FILES} SBOMs: the rest was left out")
    return tuple(sorted(purls))


def _find_purls(document: object, depth: int) -> Iterator[str]:
    if not isinstance(document, dict) or depth > _DEEPEST:
        return
    for key in ("components", "packages"):
        entries = document.get(key)
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            references = entry.get("externalRefs")
            candidates = [entry.get("purl")] + [
                reference.get("referenceLocator")
                for reference in (references if isinstance(references, list) else ())
                if isinstance(reference, dict) and reference.get("referenceType") == "purl"
            ]
            for purl in candidates:
                if isinstance(purl, str) and purl.startswith("pkg:") and len(purl) < 2048:
                    yield purl.encode("utf-8", "backslashreplace").decode()
            yield from _find_purls(entry, depth + 1)
