buildmatrix init --offline
