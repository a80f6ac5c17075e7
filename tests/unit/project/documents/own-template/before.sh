sed -i 's|^\[backend.cuda\]$|&\ntemplate = "images/ours.Dockerfile.j2"|' buildmatrix.toml
