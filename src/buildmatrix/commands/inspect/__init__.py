"""`inspect`: what one file says, and what a tree holds."""
