"""Findings and answers → text.

In: the data of a document (a run, a comparison, an answer of `why`, a fleet, a preflight, ...),
which commands fill.
Out: its text in a format: terminal, Markdown, HTML, JSON, SARIF, JUnit, SBOMs, ...
Data stand beside their formats, so a format never needs a command. Each format is a pure function;
`formats` lists those of every document.
"""
