"""One binary, read whole or as it passes by: the facts of `elf` and of `device_code`, joined."""
