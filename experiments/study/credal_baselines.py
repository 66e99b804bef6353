"""Credal baselines on stored features: EffCre, CreRL and the credal wrapper of five networks.

All networks are linear heads on the same features of the last layer, which have mean 0 and standard
deviation 1 on the training rows. EffCre and CreRL start from the head that the other methods use.
"""

import torch

from creinn import TrainConfig, fit
from creinn.baselines import SNN, CreRL, EffCre
from creinn.classifier.methods import TIMES
from creinn.credal.credal_set import CredalSet
from experiments.study.features import Kept, Sets

ALPHA = 0.95  # smallest relative likelihood
MEMBERS = {"CreRL": 8, "credal wrapper": 5}
EPOCHS = 10  # of the networks of the credal wrapper; the best epoch on held-out rows is used


def credal_baselines(kept: Kept, x: Sets, y: Sets) -> dict[str, Sets]:
    """Compute the predictions of each method on all sets except the training rows."""
    rows = {name: one[:, -kept.widths[-1] :] for name, one in x.items()}
    center, spread = rows["train"].mean(0), rows["train"].std(0) + 1e-6
    z = {name: (one - center) / spread for name, one in rows.items()}
    train, held_out = ((z[name], y[name]) for name in ("train", "held-out"))
    weight, bias = kept.fc.weight.detach(), kept.fc.bias.detach()

    def head() -> SNN:
        return SNN(torch.nn.Linear(weight.shape[1], len(weight)))

    first = head()
    first.network.weight.data, first.network.bias.data = weight * spread, bias + weight @ center
    torch.manual_seed(0)
    others = [head() for _ in range(MEMBERS["CreRL"] - 1)]
    models = {
        "EffCre": EffCre(first.network, ALPHA).eval(),
        f"CreRL {TIMES}{MEMBERS['CreRL']}": CreRL([first, *others], ALPHA).eval(),
    }
    for model in models.values():
        model.after_training([train])
    asked = {name: one for name, one in z.items() if name != "train"}
    found = {
        method: {name: model.predict(one, 1000) for name, one in asked.items()}
        for method, model in models.items()
    }
    members = [head() for _ in range(MEMBERS["credal wrapper"])]
    for seed, member in enumerate(members):
        settings = TrainConfig(epochs=EPOCHS, seed=seed, keep="best", progress=False)
        fit(member, train, held_out, settings)
    found[f"credal wrapper {TIMES}{len(members)}"] = {
        name: CredalSet.from_samples(
            torch.stack([member.predict(one, 1000).probabilities for member in members])
        )
        for name, one in asked.items()
    }
    return found
