"""`python -m inferno.warmup --batch N`: load the model, run one batch, check the answers."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from inferno.backends import load
from inferno.model import Classifier


def main() -> int:
    """Exit code 0 when every sample of the batch is classified as it should be."""
    parser = argparse.ArgumentParser(prog="inferno.warmup")
    parser.add_argument("--batch", type=int, default=16)
    batch = parser.parse_args().batch
    samples = json.loads(Path(__file__).with_name("samples.json").read_text())
    pixels = np.resize(np.asarray(samples["pixels"], np.float32), (batch, 64))
    expected = np.resize(np.asarray(samples["digits"]), batch).tolist()
    start = time.perf_counter()
    backend = load()
    answers = Classifier(backend).classify(pixels)
    seconds = time.perf_counter() - start
    print(f"{backend.device()}: {batch} pictures in {seconds:.2f} s, {answers == expected=}")
    return 0 if answers == expected else 1


if __name__ == "__main__":
    raise SystemExit(main())
