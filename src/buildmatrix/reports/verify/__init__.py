"""The document of `verify`: whether an image has proof, and which."""
