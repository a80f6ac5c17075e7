"""What the host's loader reads in an ELF file. Facts only, no vendors; standard library only."""
