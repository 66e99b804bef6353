"""
Uncertainty of CreINN and of the baselines
==========================================

This example uses two features of the iris data, so that the whole input space can be plotted. All
methods have the same interface: ``fit``, ``predict``, ``total``, ``aleatoric``, ``epistemic``.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_iris

from creinn import CreINN, TrainConfig, fit, models
from creinn import nn as inn
from creinn.baselines import BNN, SNN, DeepEnsemble, LaplaceBNN, local_reparameterization

iris = load_iris()
x, y = torch.from_numpy(iris.data[:, 2:]).float(), torch.from_numpy(iris.target)
x = (x - x.mean(0)) / x.std(0)


def network(layers=torch.nn):
    return models.mlp(2, 3, hidden=(32, 32), layers=layers)


torch.manual_seed(0)
methods = {
    "Deep Ensemble of 5": DeepEnsemble([SNN(network()) for _ in range(5)]),
    "BNN, 10 samples": BNN(network(local_reparameterization), kl_weight=0.1),
    "Laplace": LaplaceBNN(network()),
    "CreINN, the paper's": CreINN(network(inn)),
    "CreINN-D": CreINN(network(), distance=True),
}
for name, model in methods.items():
    for seed, part in enumerate(getattr(model, "members", [model])):
        config = TrainConfig(
            epochs=60, batch_size=32, learning_rate=0.01, seed=seed, progress=False
        )
        fit(part, (x, y), config=config)
    print(f"{name:20} accuracy {(model.predict(x).label == y).float().mean():.3f}")

# %%
# The plots show the epistemic uncertainty; dark areas have a high uncertainty. It should be high
# far from the data. The members of the ensemble disagree only near their decision boundaries. The
# uncertainty of the Bayesian networks and of the paper's CreINN increases in some directions, and
# the one of CreINN-D in all directions.

size = 61
grid = torch.cartesian_prod(torch.linspace(-6, 6, size), torch.linspace(-6, 6, size))
figure, panels = plt.subplots(1, 5, figsize=(13, 3.1), layout="constrained")
for axes, (name, model) in zip(panels, methods.items(), strict=True):
    plane = model.predict(grid).epistemic.reshape(size, size).T.numpy()
    shown = axes.imshow(
        plane, origin="lower", extent=(-6, 6, -6, 6), cmap="Purples", vmin=0, vmax=1.585
    )
    for k in range(3):
        axes.plot(*x[y == k].T, ".", ms=3)
    axes.set(title=name, xticks=[], yticks=[])
figure.colorbar(shown, ax=panels, label="EU, bits", shrink=0.8)
plt.show()

# %%
# Numbers for two places: in the middle of a class, and far away.

places = torch.stack([x[y == 2].mean(0), torch.tensor([-5.0, 5.0])])
for name, model in methods.items():
    s = model.predict(places)
    print(f"{name:20} EU among flowers {s.epistemic[0]:.2f}, far away {s.epistemic[1]:.2f} bits")
