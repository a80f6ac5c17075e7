"""OCI image specification 1.1: documents, layers, image layouts and archives."""
