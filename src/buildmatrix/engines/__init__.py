"""Engines that build, open and run images, behind one interface."""
