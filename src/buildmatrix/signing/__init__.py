"""Signed statements about an image: its verdict and its bill of materials.

In: a target's result and a key or a CI identity; for `verify`, an image in a registry.
Out: attestations beside the image in its registry; for `verify`, the signed verdict or a refusal.
`documents` has the formats, `keys` and `keyless` sign and verify, `attach` and `attached` write to
and read from the registry, `verdict` is our own predicate.
"""
