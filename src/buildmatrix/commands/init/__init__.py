"""`init`: write a first specification from a project's requirements or locks."""
