# A project whose images are built, in parts and as a whole, and which has machines to run them on.
rm -r .git
git init -q -b main .
cat >>buildmatrix.toml <<X

[node-class.h100]
backend = "cuda"
driver = ">=570"
products = ["NVIDIA-H100-80GB-HBM3"]

[[waive]]
rule = "BM710"
distribution = "xgboost"
reason = "it ran there"
owner = "team@example.com"
expires = 2999-01-31
X
git add buildmatrix.toml locks requirements
git commit -q -m 'What is on main'
git update-ref refs/remotes/origin/main HEAD
echo '{}' >engine.json
buildmatrix -q build --format json=last.json
for part in 1 3; do
  buildmatrix -q build --shard $part/3 --timings last.json --stage --format json=report-$part.json
done
for part in 1 2; do
  buildmatrix -q build --shard $part/2 --format json=shard-$part.json
done
# Images of somebody else.
names='"acme:1": "cuda12.8-py311-server", "acme/inferno:1.4.0": "cuda12.8-py311-server"'
sed -i "s|^{|{$names, \"acme/inferno:1.3.0\": \"cpu-py311-server\", |" .fake-images.json
