"""
An interval for each weight of a trained network
================================================

``creinn.convert`` converts an ordinary network to an interval network. If only the radii are
trained, the widths are learned and the predictions of the centres do not change.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import creinn
from creinn import CreINN, TrainConfig, fit

digits = load_digits()
x, y = torch.from_numpy(digits.images).float().unsqueeze(1) / 16, torch.from_numpy(digits.target)
x_train, x_test, y_train, y_test = x[:1200], x[1200:], y[:1200], y[1200:]

# %%
# Train an ordinary network of known layers.

torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(1, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Flatten(), nn.Linear(128, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
for _ in range(6):
    for rows in torch.randperm(len(x_train)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x_train[rows]), y_train[rows]).backward()
        optimizer.step()
probabilities = network.eval()(x_test).softmax(1).detach()
print(f"accuracy {(probabilities.argmax(1) == y_test).float().mean():.3f}")

# %%
# The interval network has the same paths and weights, and a radius for each weight. In sound mode,
# its credal set contains the prediction of every network inside these intervals, without training.

sound = CreINN(
    creinn.convert(network, radius=0.01, mode="sound"), mode="sound", logit_norm=False
).eval()
s = sound.predict(x_test)
print(
    f"mean width {s.width.mean():.4f}; holds what the network says:",
    bool(s.contains(probabilities).all()),
)
print([name for name, _ in sound.network.named_parameters()][:4], "...")

# %%
# With the norms of the paper, the radii can be trained alone for a few epochs.

model = CreINN(creinn.convert(network, radius=0.01), logit_norm=False).eval()
before = model.predict(x_test)
fit(model, (x_train, y_train), config=TrainConfig(epochs=5, train="radii", progress=False))
after, noise = model.predict(x_test), model.predict(torch.rand(300, 1, 8, 8))
print(
    "centres as they were:", torch.equal(model.network.get_parameter("0.weight"), network[0].weight)
)

# %%
# The sets are wider if the network is wrong, and on noise, which is not part of the training data.

wrong = after.label != y_test
groups = {
    "right": after.width.amax(1)[~wrong],
    "wrong": after.width.amax(1)[wrong],
    "noise": noise.width.amax(1),
}
print(f"widest interval, before: {before.width.amax(1).mean():.3f}; after:")
print({name: f"{width.mean():.3f}" for name, width in groups.items()})
figure, axes = plt.subplots(figsize=(6, 2.5), layout="constrained")
axes.boxplot(
    list(groups.values()), orientation="horizontal", tick_labels=list(groups), showfliers=False
)
axes.set_xlabel("width of the widest interval of a set")
plt.show()

# %%
# ``creinn.diagnose`` shows the widths of the intervals in each layer.

print(creinn.diagnose(model, x_test[:100], y_test[:100]))
