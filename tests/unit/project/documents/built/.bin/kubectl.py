"""A cluster of one machine: `logs` runs what the pod of each Job runs, with this Python."""

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

texts = [path.read_text() for path in sorted(Path("jobs").iterdir())]
documents = [document for text in texts for document in yaml.safe_load_all(text)]
if sys.argv[1] == "create":
    for item in documents:
        print(f"{item['kind'].lower()}/{item['metadata']['name']} created")
    sys.exit()
assert sys.argv[1] == "logs"
maps = [item for item in documents if item["kind"] == "ConfigMap"]
files = {item["metadata"]["name"]: item["data"] for item in maps}
for job in documents:
    if job["kind"] != "Job":
        continue
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (name,) = (volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume)
    with tempfile.TemporaryDirectory() as folder:
        for file, text in files[name].items():
            Path(folder, file).write_text(text)
        words = [word.replace("/buildmatrix", folder) for word in container["command"][1:]]
        ended = subprocess.run(
            [sys.executable, *words],
            env={"BUILDMATRIX_NODE": "gpu-00", "BUILDMATRIX_POD": "pod-0"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    for line in ended.stdout.splitlines():
        print(f"[pod/pod-0/{container['name']}] {line}")
