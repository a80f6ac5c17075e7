"""Foundations that know nothing of images; every other room may import them.

Errors (one class per exit code), text for people, threads, child processes, temporary folders,
progress. Untrusted text, JSON and TOML enter; values within bounds leave, or one exception per
parser.
"""
