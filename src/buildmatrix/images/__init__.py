"""Images as files: OCI documents, layers, and the store of facts that were read from them."""
