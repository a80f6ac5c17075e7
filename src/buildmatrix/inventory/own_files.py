"""Files whose contents `collect` reads, as far as their names tell.

A reader of layers keeps the bytes of these as they pass by: METADATA, package lists, loader
configuration, Python sources. Links can lead `collect` to a file of any other name.
"""

from __future__ import annotations

import re

from buildmatrix.inventory.conda import LARGEST_RECORD as LARGEST_CONDA_RECORD
from buildmatrix.inventory.distributions import LARGEST_METADATA, LARGEST_NOTE, LARGEST_RECORD
from buildmatrix.inventory.loader_cache import LARGEST_CACHE
from buildmatrix.inventory.python_path import LARGEST_FILE
from buildmatrix.inventory.sboms import LARGEST as LARGEST_SBOM
from buildmatrix.inventory.system import LARGEST_CONFIGURATION, LARGEST_STATUS
from buildmatrix.inventory.system_files import LARGEST_LIST
from buildmatrix.inventory.variants import LARGEST as LARGEST_VARIANT
from buildmatrix.python_imports.source import LARGEST_SEARCHED

#: Ends of paths, without the folders above that links may replace, with the size limit of each
#: file.
_LIMITS = {
    r"[^/]*\.py": LARGEST_SEARCHED,
    r"[^/]*\.(?:dist|egg)-info/RECORD": LARGEST_RECORD,
    r"[^/]*\.(?:dist|egg)-info/(?:METADATA|PKG-INFO)|[^/]*\.egg-info": LARGEST_METADATA,
    r"[^/]*\.(?:dist|egg)-info/(?:INSTALLER|direct_url\.json|entry_points\.txt)": LARGEST_NOTE,
    r"[^/]*\.(?:dist|egg)-info/variant\.json": LARGEST_VARIANT,
    r"[^/]*\.(?:dist|egg)-info/sboms/.*": LARGEST_SBOM,
    r"[^/]*\.pth|pyvenv\.cfg": LARGEST_FILE,
    r"conda-meta/[^/]+\.json": LARGEST_CONDA_RECORD,
    r"status|status\.d/[^/]+|db/installed": LARGEST_STATUS,
    r"info/[^/]+\.list": LARGEST_LIST,
    r"ld\.so\.cache": LARGEST_CACHE,
    r"ld\.so\.(?:conf|preload)|ld\.so\.conf\.d/[^/]+|ld-musl-[^/]+\.path": LARGEST_CONFIGURATION,
}
_READ_PATTERN = re.compile(
    f"(?:^|/)(?:{'|'.join(f'({pattern})' for pattern in _LIMITS)})\\Z", re.DOTALL
)
_SIZE_LIMITS = tuple(_LIMITS.values())


def is_content_read(path: str, size: int) -> bool:
    """True if `collect` may read the whole file `path`, not only inspect it."""
    match = _READ_PATTERN.search(path)
    return (
        match is not None
        and match.lastindex is not None
        and size <= _SIZE_LIMITS[match.lastindex - 1]
    )
