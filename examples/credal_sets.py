"""
Credal sets by hand
===================

A lower and an upper probability for each class, and all that follows from them: no network is needed for that.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from creinn import CredalSet

names = ["cat", "dog", "fox"]
s = CredalSet(torch.tensor([0.1, 0.3, 0.0]), torch.tensor([0.4, 0.7, 0.32]))
for name, low, high in zip(names, s.lower, s.upper, strict=True):
    print(f"{name}: between {low:.2f} and {high:.2f}")

# %%
# The set of all distributions between these bounds is a polygon in the triangle whose corners are the classes. Its
# corners are :meth:`~creinn.CredalSet.vertices`. The diamond is the intersection probability, the one distribution
# that stands for the set, and from which the label is taken.

CORNERS = np.array([[0, 0], [1, 0], [0.5, 3**0.5 / 2]])


def triangle(s, names, axes, color="tab:blue"):
    """Draw one credal set of three classes."""
    points = s.vertices().numpy() @ CORNERS
    middle = points - points.mean(0)
    points = points[np.arctan2(middle[:, 1], middle[:, 0]).argsort()]
    axes.fill(*CORNERS.T, facecolor="none", edgecolor="grey")
    axes.fill(*points.T, facecolor=color, edgecolor=color, alpha=0.4)
    axes.plot(*(s.intersection.numpy() @ CORNERS), "D", color=color)
    for name, corner in zip(names, CORNERS, strict=True):
        axes.annotate(
            name, corner, (0, 8 if corner[1] else -16), textcoords="offset points", ha="center"
        )
    axes.set_aspect("equal")
    axes.axis("off")


figure, axes = plt.subplots(figsize=(4, 3.6))
triangle(s, names, axes)
plt.show()

# %%
# Uncertainty, in bits: the *upper entropy* is that of the least committed member, total uncertainty (TU). The *lower
# entropy* is that of the most committed one, aleatoric uncertainty (AU): what would remain if the set shrank to it.
# Their difference is epistemic (EU): what is open because the set is wide.

print(f"TU {s.total:.3f}, AU {s.aleatoric:.3f}, EU {s.epistemic:.3f}")
value, member = s.lower_entropy(return_distribution=True)
print("the most committed member:", member)

# %%
# Which classes are not ruled out? The second rule keeps fewer classes.

for rule in ("maximality", "e-admissibility"):
    kept = [name for name, keep in zip(names, s.classes(rule), strict=True) if keep]
    print(f"{rule:16}", ", ".join(kept))

# %%
# Three ways of not knowing. A narrow set in the middle is ambiguous: AU is high. A narrow set in a corner is certain.
# A wide set says that nothing is known: EU is high.

kinds = {
    "ambiguous": CredalSet(torch.tensor([0.30, 0.30, 0.30]), torch.tensor([0.37, 0.37, 0.37])),
    "certain": CredalSet(torch.tensor([0.00, 0.90, 0.00]), torch.tensor([0.05, 1.00, 0.05])),
    "unknown": CredalSet(torch.tensor([0.05, 0.05, 0.05]), torch.tensor([0.80, 0.80, 0.80])),
}
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2))
for axes, (kind, s) in zip(panels, kinds.items(), strict=True):
    triangle(s, names, axes)
    axes.set_title(f"{kind}\nAU {s.aleatoric:.2f}, EU {s.epistemic:.2f} bits", pad=20)
plt.show()
