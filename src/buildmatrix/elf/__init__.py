"""What one binary says. Facts only, no vendors; standard library only."""
