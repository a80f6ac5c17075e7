"""Advisories about distributions: `pip-audit`, driven."""
