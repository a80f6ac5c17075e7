"""What a data file of the catalogue may hold; `docs/catalogue.md` describes it for its authors.

The classes are the file's tables. msgspec checks types, allowed values and unknown keys when it
builds them, so whoever holds one need not check again. Globs are those of `fnmatch`.
"""
