"""Images read layer by layer: each layer once, whoever has it, and its facts are kept."""
