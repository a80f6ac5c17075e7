"""What a data file of the catalogue may hold; `docs/catalogue.md` describes it for its authors.

The classes are the file's tables. msgspec checks types, allowed values and unknown keys when it
builds them, so an instance need not be checked again. Globs are those of `fnmatch`.
"""
