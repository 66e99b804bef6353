"""A trained model runs where there is no torch: bounds, label, uncertainties and classes left open from one ONNX file.

The first part trains a CreINN-D on scikit-learn's wines and exports it. The second part is another
process that imports numpy and onnxruntime alone. Takes about half a minute, most of it for the export.

    pip install "creinn[onnx]"
    python examples/export.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def train() -> tuple[Any, np.ndarray]:
    import torch
    from sklearn.datasets import load_wine

    import creinn

    wine = load_wine()
    x, y = torch.from_numpy(wine.data).float(), torch.from_numpy(wine.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, held_out = order[:120], order[120:]
    mean, scale = x[train].mean(0), x[train].std(0)
    torch.manual_seed(0)
    scaled = (x - mean) / scale
    model = creinn.CreINN(creinn.models.mlp(13, 3, hidden=(32,), layers=torch.nn), distance=True)
    config = creinn.TrainConfig(epochs=30, learning_rate=0.01, progress=False)
    creinn.fit(model, (scaled[train], y[train]), (scaled[held_out], y[held_out]), config)
    model.class_names = [str(name) for name in wine.target_names]
    model.preprocessing = {"mean": mean.tolist(), "scale": scale.tolist()}
    return model, x[held_out[:3]].numpy()


def make(folder: Path) -> None:
    from creinn import export

    model, wines = train()
    export(model, folder / "model.onnx")
    np.save(folder / "wines.npy", wines)


def run(folder: Path) -> None:
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    about = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    names = np.array(about["class_names"])
    mean, scale = (np.array(about["preprocessing"][name], dtype=np.float32) for name in ("mean", "scale"))
    wines = np.load(folder / "wines.npy")
    rows = np.concatenate([wines, 3 * wines[:1]])  # the last one is like no other
    outputs = [output.name for output in session.get_outputs()]
    found = dict(zip(outputs, session.run(outputs, {"x": (rows - mean) / scale}), strict=True))
    for row in range(len(rows)):
        pairs = zip(found["lower"][row], found["upper"][row], strict=True)
        bounds = " ".join(f"[{low:.2f}, {high:.2f}]" for low, high in pairs)
        measures = f"AU {found['AU'][row]:.2f} EU {found['EU'][row]:.2f} bits"
        print(names[found["label"][row]], bounds, measures, "not ruled out:", ", ".join(names[found["classes"][row]]))
    assert "torch" not in sys.modules


def main() -> None:
    if len(sys.argv) > 1:
        run(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        subprocess.run([sys.executable, __file__, folder], check=True)


if __name__ == "__main__":
    main()
