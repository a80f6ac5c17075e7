"""Pictures of graphs: what a picture holds, and each format of it."""
