"""Train the example's model and write weights.json and samples.json (needs scikit-learn)."""

from __future__ import annotations

import json
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

APP = Path(__file__).parents[1] / "app" / "inferno"


def main() -> None:
    """Two dense layers; prints the accuracy on the held-out fifth."""
    digits = load_digits()
    train, test, train_y, test_y = train_test_split(
        digits.data / 16, digits.target, test_size=0.2, random_state=0
    )
    model = MLPClassifier((24,), max_iter=800, random_state=0).fit(train, train_y)
    print(f"accuracy {model.score(test, test_y):.3f}")
    layers = [
        {"weights": w.round(5).tolist(), "bias": b.round(5).tolist()}
        for w, b in zip(model.coefs_, model.intercepts_, strict=True)
    ]
    (APP / "weights.json").write_text(json.dumps({"layers": layers}) + "\n")
    right = model.predict(test) == test_y
    samples = {
        "pixels": (test[right][:16] * 16).astype(int).tolist(),
        "digits": test_y[right][:16].tolist(),
    }
    (APP / "samples.json").write_text(json.dumps(samples) + "\n")


if __name__ == "__main__":
    main()
