"""A comparison (`diff`) and the drift between targets: each format of them."""
