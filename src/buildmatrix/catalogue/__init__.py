"""Which names, sections and packages belong to which vendor: data files, and the matcher."""
