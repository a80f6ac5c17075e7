"""Facts of one binary, from `elf` and `device_code`, read whole or as a stream."""
