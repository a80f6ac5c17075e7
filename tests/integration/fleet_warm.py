"""Imported by the process that workers are forked from: what each of them would read for itself."""

import distributed  # noqa: F401

from buildmatrix.catalogue.load import load_texts
from buildmatrix.images.store.cache import source_digest

source_digest()
load_texts({})
