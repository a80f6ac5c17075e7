"""Vendor knowledge: names, sections and packages by vendor, as data files, and their matcher.

Data files (`data/*.toml` and the user's own) become one `Catalogue`, indexed for lookups by name.
`match` joins it with the facts of an inventory: facts enter, `Evidence` leaves. `drivers`,
`architectures` and `releases` compare drivers, GPU architectures and versions. No vendor is named
in the code.
"""
