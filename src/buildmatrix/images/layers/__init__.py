"""Images read layer by layer, each layer once; facts are cached by digest and shared by images."""
