"""`verify`: whether an image in a registry has a proof that holds today, without its layers."""
