"""`audit`: what locked wheels would bring in, said before any of them is downloaded."""

from buildmatrix.pipeline.audit.run import audit

__all__ = ["audit"]
