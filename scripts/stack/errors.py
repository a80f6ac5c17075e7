"""Errors of the stack: one sentence for the reader, one exit code for the caller."""

from __future__ import annotations


class StackError(Exception):
    """Something went wrong on a machine the stack supports."""

    exit_code = 1


class UnsupportedMachine(StackError):
    """The stack cannot install anything here; the message says what to install by hand."""

    exit_code = 5
