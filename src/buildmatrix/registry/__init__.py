"""Images in registries: the OCI distribution API 1.1, with the credentials of this machine."""
