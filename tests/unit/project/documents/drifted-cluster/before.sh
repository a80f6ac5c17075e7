cat >>buildmatrix.toml <<X

[node-class.h100]
backend = "cuda"
driver = "550.107"
products = ["NVIDIA-H100-80GB-HBM3"]
X
