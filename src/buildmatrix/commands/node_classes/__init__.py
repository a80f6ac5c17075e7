"""`node-classes`: the machines of a cluster, written as or compared with a specification."""
