"""
Credal sets by hand
===================

This example builds credal sets from a lower and an upper probability for each class, without a
network.
"""

import matplotlib.pyplot as plt
import torch

from creinn import CredalSet

names = ["cat", "dog", "fox"]
s = CredalSet(torch.tensor([0.1, 0.3, 0.0]), torch.tensor([0.4, 0.7, 0.32]))
for name, low, high in zip(names, s.lower, s.upper, strict=True):
    print(f"{name}: between {low:.2f} and {high:.2f}")

# %%
# The set of all distributions between these bounds is a polygon in the triangle of three classes.
# Its corners are the :meth:`~creinn.CredalSet.vertices`. The diamond is the intersection
# probability, which determines the label.

s.plot(names=names)
plt.show()

# %%
# The *upper entropy* is the total uncertainty (TU) in bits, the largest entropy in the set. The
# *lower entropy* is the aleatoric uncertainty (AU), the smallest entropy in the set. The difference
# is the epistemic uncertainty (EU).

print(f"TU {s.total:.3f}, AU {s.aleatoric:.3f}, EU {s.epistemic:.3f}")
value, member = s.lower_entropy(return_distribution=True)
print("the most committed member:", member)

# %%
# Both rules return the classes that are not ruled out. The second rule returns fewer classes.

for rule in ("maximality", "e-admissibility"):
    kept = [name for name, keep in zip(names, s.classes(rule), strict=True) if keep]
    print(f"{rule:16}", ", ".join(kept))

# %%
# A narrow set in the middle is ambiguous: AU is high. A narrow set in a corner is certain. A wide
# set is uncertain because of a lack of knowledge: EU is high.

kinds = {
    "ambiguous": CredalSet(torch.tensor([0.30, 0.30, 0.30]), torch.tensor([0.37, 0.37, 0.37])),
    "certain": CredalSet(torch.tensor([0.00, 0.90, 0.00]), torch.tensor([0.05, 1.00, 0.05])),
    "unknown": CredalSet(torch.tensor([0.05, 0.05, 0.05]), torch.tensor([0.80, 0.80, 0.80])),
}
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2))
for axes, (kind, s) in zip(panels, kinds.items(), strict=True):
    s.plot(axes, names)
    axes.set_title(f"{kind}\nAU {s.aleatoric:.2f}, EU {s.epistemic:.2f} bits", pad=20)
plt.show()
