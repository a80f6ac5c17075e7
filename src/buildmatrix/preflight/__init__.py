"""`preflight`: run an image on every node class: import, compute, cold and warm."""
