"""SOURCE arguments: where something to judge is, its facts, and how its files are opened again."""
