"""The document of `promote`: which tags were set, and what they were before."""
