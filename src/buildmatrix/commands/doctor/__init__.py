"""`doctor`: what a machine can do; a check is a pure judgement of what was read before."""
