"""The OCI image specification 1.1: its documents, and images that are written by it."""
