"""
A forward pass of your own
==========================

Torch's functions and methods take an :class:`~creinn.Interval` where they take a tensor. So a ``forward`` that is
written for tensors runs on intervals, line by line the same, and gives bounds that hold for every point inside.
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
# A function whose range over an interval is not known is refused by name; nothing is guessed.

try:
    torch.sin(x)
except TypeError as error:
    print(str(error)[:150], "...")

# %%
# A network with a branch, a skip and a pooling of its own. Layers are those of ``creinn.nn``, the rest is plain torch.


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
# Do the bounds hold? Draw images from inside the box, and networks from inside the weights' intervals.

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
# ``CreINN`` turns the logits into a credal set, and trains with ``creinn.fit`` as any other network does.

s = CreINN(net, mode="sound").eval()(images)
print(s.lower[0].detach(), s.upper[0].detach())
