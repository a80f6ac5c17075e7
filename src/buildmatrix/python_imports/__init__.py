"""What an `import` reaches, read from source text: nothing of it runs."""
