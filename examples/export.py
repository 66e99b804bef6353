"""
A model that runs without torch
===============================

This example writes a trained CreINN-D as an ONNX file that computes bounds, label, uncertainties
and the set of classes. Another process runs the file without torch.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_wine

import creinn

wine = load_wine()
x, y = torch.from_numpy(wine.data).float(), torch.from_numpy(wine.target)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
train, held_out = order[:120], order[120:]
mean, scale = x[train].mean(0), x[train].std(0)
scaled = (x - mean) / scale
torch.manual_seed(0)
model = creinn.CreINN(creinn.models.mlp(13, 3, hidden=(32,), layers=torch.nn), distance=True)
config = creinn.TrainConfig(epochs=30, learning_rate=0.01, progress=False)
creinn.fit(model, (scaled[train], y[train]), (scaled[held_out], y[held_out]), config)

# %%
# The preprocessing is not in the graph. The class names and the scaling are stored as metadata.

model.class_names = [str(name) for name in wine.target_names]
model.preprocessing = {"mean": mean.tolist(), "scale": scale.tolist()}
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "model.onnx"
creinn.export(model, path)
print(path.name, f"{path.stat().st_size / 1024:.0f} kB")

# %%
# The other program uses onnxruntime and NumPy. It fails if torch is loaded.

PROGRAM = """
import json, sys
import numpy as np, onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
about = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
names, before = np.array(about["class_names"]), about["preprocessing"]
rows = (np.array(json.load(sys.stdin)) - before["mean"]) / before["scale"]
outputs = [output.name for output in session.get_outputs()]
found = dict(zip(outputs, session.run(outputs, {"x": rows.astype(np.float32)})))
for row in range(len(rows)):
    bounds = " ".join(f"[{low:.2f}, {high:.2f}]" for low, high in zip(found["lower"][row], found["upper"][row]))
    measures = f"AU {found['AU'][row]:.2f} EU {found['EU'][row]:.2f} bits"
    print(names[found["label"][row]], bounds, measures, "not ruled out:", ", ".join(names[found["classes"][row]]))
assert "torch" not in sys.modules
"""

# %%
# Predict three held-out wines and one row that differs from all wines.

wines = torch.cat([x[held_out[:3]], 3 * x[held_out[:1]]]).tolist()
done = subprocess.run(
    [sys.executable, "-c", PROGRAM, path],
    input=str(wines),
    capture_output=True,
    text=True,
    check=True,
)
print(done.stdout)
