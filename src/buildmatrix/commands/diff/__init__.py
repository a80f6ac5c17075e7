"""`diff`: what differs between two sides, and between the targets of one specification."""
