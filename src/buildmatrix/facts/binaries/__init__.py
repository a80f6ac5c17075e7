"""Facts of one binary, read whole or as a stream, and the formats of device code in it."""
