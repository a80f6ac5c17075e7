"""`buildmatrix.toml` → validated specification → targets.

`load` reads the file with the tables of `keys`, and reports all problems with their positions.
`matrix` expands the axes to points, `targets` fills in the values of each point. A file enters;
`Spec` and `Target` (`matrix.model`) leave, with every value checked.
"""
