"""
Decisions with a guarantee
==========================

``calibrate`` uses rows that were not used in training. Then the sets of classes contain the true
class of new rows with the chosen probability (split conformal prediction).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from creinn.evaluation import set_coverage
from creinn.sklearn import CreINNClassifier

rng = np.random.default_rng(0)
x, y = load_digits(return_X_y=True)
order = rng.permutation(len(y))
x, y = x[order] + rng.normal(0, 6, x.shape), y[order]  # noise, to make it harder
train, calibration, test = slice(0, 800), slice(800, 1200), slice(1200, None)

clf = CreINNClassifier(max_iter=30, random_state=0).fit(x[train], y[train])
print(f"accuracy {clf.score(x[test], y[test]):.3f}")

# %%
# The observed coverage agrees with the nominal coverage up to chance. A higher coverage needs
# larger sets.

clf.calibrate(x[calibration], y[calibration], coverage=0.95)
levels, sizes = [0.85, 0.9, 0.95, 0.99], []
for level in levels:
    sets = clf.predict_set(x[test], coverage=level)
    found = set_coverage(sets, y[test]).all
    sizes.append(np.bincount(sets.sum(1), minlength=11) / len(sets))
    print(f"{level:.2f}: observed {found.coverage:.3f} ({found.low:.3f} to {found.high:.3f})")

figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
for k, (level, share) in enumerate(zip(levels, sizes, strict=True)):
    axes.bar(np.arange(11) + 0.2 * (k - 1.5), share, 0.2, label=f"{level:.0%}")
axes.set(xlabel="classes in the set", ylabel="share of the rows", xticks=range(11))
axes.legend(title="coverage")
plt.show()

# %%
# On foreign rows there is no guarantee, but the sets grow with the intervals.

foreign = rng.normal(8, 12, x[test].shape)
print(f"classes per set on noise: {clf.predict_set(foreign, coverage=0.95).sum(1).mean():.1f}")

# %%
# With several annotators per row, the labels are distributions. Here seven votes are drawn from a
# second model. The credal sets are widened so that they contain the distribution of the votes with
# the chosen probability.

opinion = LogisticRegression(C=1e-4, max_iter=1000).fit(x, y).predict_proba(x)
shares = np.stack([rng.multinomial(7, p / p.sum()) for p in opinion]) / 7
clf = CreINNClassifier(max_iter=30, random_state=0).fit(x[train], shares[train].argmax(1))
clf.calibrate(x[calibration], shares[calibration], coverage=0.9)
narrow = clf.credal_set(x[test])
for name, sets in (("predicted", narrow), ("widened", narrow.widened())):
    held = sets.contains(shares[test]).double().mean()
    print(f"{name:9} sets hold {held:.3f} of the votes; mean width {sets.width.mean():.3f}")
