"""The Python API: commands as functions of their options.

In: the options of a command (`commands.options`), with a `Workspace` for this machine.
Out: a `CommandResult`: the document as data, and the exit code.
The command line calls these functions. `import buildmatrix` has them with their options as keyword
arguments (`functions`).
"""
