"""Locks: ours (one per target, resolved by uv) and those of other tools; and their inputs.

`requirement_files` and `projects` read the inputs, `resolve` and `preview` run uv, `committed`
reads `uv.lock`, `poetry.lock`, `Pipfile.lock`, pinned requirements and pylocks as one target would
install them. `index` reads the named wheels in parts, within a budget. Files of a project enter;
`Lock`, and facts of its wheels, leave. No code of a project or a distribution is run, except to
build a wheel that the user asked for.
"""
