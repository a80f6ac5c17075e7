"""`doctor`: capabilities of a machine; each check is a pure function of facts read before."""
