"""`promote`: the tags of all staged images, or of none."""
