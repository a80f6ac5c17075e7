"""The work of each command, without a command line: one package or module per command.

In: a specification or SOURCEs, and options as plain values.
Out: the data of the command's document (`reports`), and its exit code.
Commands use `judge`, `sources`, `locks` and `engines`, and never click or the terminal.
"""
