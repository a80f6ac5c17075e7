"""The real components that `buildmatrix` is developed and tested against.

`python3 -m scripts.stack up` gives a machine a working Docker engine with BuildKit,
an image registry on loopback, and base images under the names real users pull.
What already runs is reused; `down` stops only what `up` started.

One module per idea: `apt` (Debian packages), `wheels` (pinned wheels), `process`
(daemons and locks), `engine`, `registry`, `bases`, `environment` (what to export).
"""
