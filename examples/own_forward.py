"""
A forward pass of your own
==========================

The functions and methods of torch accept an :class:`~creinn.Interval` in place of a tensor. A
``forward`` that is written for tensors therefore runs on intervals.
"""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from creinn import CreINN, Interval
from creinn import nn as inn

x = Interval(torch.tensor([-1.0, 0.5]), torch.tensor([1.0, 2.0]))
print(F.gelu(x))
print(torch.cat([x.relu(), 2 * x - 1]).sum(0))

# %%
# A function without known range over an interval raises a ``TypeError`` with its name.

try:
    torch.sin(x)
except TypeError as error:
    print(str(error)[:150], "...")

# %%
# This network has a branch, a skip connection and its own pooling. The layers are those of
# ``creinn.nn``.


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = inn.Conv2d(1, 8, 3, padding=1), inn.Conv2d(8, 8, 3, padding=1)
        self.head = inn.Linear(16, 3)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = x + F.silu(self.second(x))
        return self.head(torch.cat([x.mean((2, 3)), F.adaptive_max_pool2d(x, 1).flatten(1)], dim=1))


torch.manual_seed(0)
net = Net()
inn.scale_radii_(net, 0.01)
images = torch.rand(4, 1, 8, 8)
logits = net(Interval(images - 0.05, images + 0.05))
print(logits.shape, "mean width", f"{logits.width.mean():.3f}")

# %%
# To test the bounds, draw images inside the box and networks inside the weight intervals.

inside = []
for _ in range(200):
    drawn = {
        name: value
        + (2 * torch.rand_like(value) - 1) * net.get_parameter(f"{name}_radius").clamp_min(0)
        for name, value in net.named_parameters()
        if not name.endswith("_radius")
    }
    point = {name: torch.zeros_like(value) for name, value in net.named_parameters()} | drawn
    noise = 0.05 * (2 * torch.rand_like(images) - 1)
    inside.append(torch.func.functional_call(net, point, images + noise).center[0])
inside = torch.stack(inside).detach()
low, high = logits.lower[0].detach(), logits.upper[0].detach()
print("all inside:", bool(((low <= inside) & (inside <= high)).all()))
figure, axes = plt.subplots(figsize=(6, 2.5), layout="constrained")
axes.hlines(range(3), low, high, lw=14, alpha=0.3, label="bounds")
axes.plot(inside, torch.arange(3).expand(200, 3), "k.", ms=2)
axes.set(yticks=range(3), xlabel="logit", ylabel="class")
plt.show()

# %%
# ``CreINN`` converts the logits to a credal set. ``creinn.fit`` trains it like any other network.

s = CreINN(net, mode="sound").eval()(images)
print(s.lower[0].detach(), s.upper[0].detach())
