"""Who builds, opens and runs images, behind one interface."""
