"""
Images
======

A small convolutional network is trained on the digits 0 to 7. The digits 8 and 9 and noise are out
of distribution and should have a high epistemic uncertainty.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from creinn import CreINN, TrainConfig, fit, models, report

digits = load_digits()
images, labels = (
    torch.from_numpy(digits.images).float().unsqueeze(1) / 16,
    torch.from_numpy(digits.target),
)
known = labels < 8
(train, held_out, test), classes = (part[known].split([700, 300, 443]) for part in (images, labels))

# %%
# CreINN-D is a ResNet of ordinary layers with a distance. ``fit`` trains the network, fits the
# distance to the training data at several layers, and uses the held-out images to choose the scale.

torch.manual_seed(0)
model = CreINN(models.resnet8(8, in_channels=1, width=8, layers=torch.nn), distance=True)
fit(
    model,
    (train, classes[0]),
    (held_out, classes[1]),
    TrainConfig(epochs=12, learning_rate=0.01, progress=False),
)
inside = model.predict(test)
print(
    f"accuracy {(inside.label == classes[2]).float().mean():.3f}; distance measured at",
    *model.feature_layers,
)

# %%
# The AUROC measures how well the epistemic uncertainty separates foreign images from test images.
# An AUROC of 0.5 corresponds to chance.

outside = {"digits 8 and 9": images[~known], "noise": torch.rand(300, 1, 8, 8)}
predictions = {name: model.predict(foreign) for name, foreign in outside.items()}
report.plot_ood(inside, predictions).set(yscale="log")
plt.show()

# %%
# The total uncertainty predicts errors on test images. The accuracy increases if the most uncertain
# images are rejected.

report.plot_rejection(inside, classes[2])
plt.show()

# %%
# These images have the highest uncertainty. The titles show the classes in their sets.

figure, panels = plt.subplots(1, 6, figsize=(9, 2), layout="constrained")
for axes, row in zip(panels, inside.total.argsort(descending=True), strict=False):
    axes.imshow(test[row, 0].numpy(), cmap="gray_r")
    axes.set_title(
        ", ".join(map(str, inside.classes()[row].nonzero().flatten().tolist())),
        fontsize=9,
    )
    axes.axis("off")
plt.show()
