"""What is signed about an image and travels with it: its verdict, and what it holds."""
