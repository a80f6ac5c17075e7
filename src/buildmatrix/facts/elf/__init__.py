"""ELF files as the host's loader reads them. No vendors; standard library only."""
