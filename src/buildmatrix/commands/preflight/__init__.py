"""`preflight`: an image is imported, computes and is warm, on every node class."""
