"""`verify`: check an image's signed verdict in a registry, without reading its layers."""
