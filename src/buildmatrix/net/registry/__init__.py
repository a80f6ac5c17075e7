"""Images in registries: the OCI distribution API 1.1, with this machine's credentials."""
