"""The command `init`: a first specification from what a project already has."""
