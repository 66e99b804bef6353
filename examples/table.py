"""
A table
=======

The data describe wines of three growers by thirteen numbers. The estimator follows the conventions
of scikit-learn and works in pipelines and in cross-validation.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from creinn.sklearn import CreINNClassifier

wine = load_wine()
X_train, X_test, y_train, y_test = train_test_split(
    wine.data, wine.target, stratify=wine.target, random_state=0
)
clf = CreINNClassifier(random_state=0).fit(X_train, y_train)
print(f"accuracy {clf.score(X_test, y_test):.3f}")

# %%
# Each number of a wine is multiplied by a factor. The intervals grow with the distance from the
# training data until no class is ruled out. The probability of a single network would not show
# this.

factors = np.linspace(0.5, 3, 60)
rows = factors[:, None] * X_test[:1]
bounds = clf.predict_interval(rows)
figure, panels = plt.subplots(4, 1, figsize=(7, 6), sharex=True, layout="constrained")
for k, axes in enumerate(panels[:3]):
    axes.fill_between(factors, *bounds[:, k].T, color=f"C{k}", alpha=0.3)
    axes.plot(factors, clf.predict_proba(rows)[:, k], color=f"C{k}")
    axes.set(ylabel=wine.target_names[k], ylim=(-0.05, 1.05))
for name, values in clf.uncertainty(rows).items():
    panels[3].plot(factors, values, label=name)
panels[3].set(xlabel="factor on every number of a wine", ylabel="bits")
panels[3].legend()
plt.show()

# %%
# The set of classes supports decisions: a set with one class is a decision, and a set with several
# classes needs a person.

sets = clf.predict_set(X_test)
print(f"{(sets.sum(1) == 1).mean():.0%} of the test wines get one class")
print(f"the set holds the true class of {sets[np.arange(len(y_test)), y_test].mean():.0%}")
print("a wine like no other:", clf.predict_set(3 * X_test[:1])[0])

# %%
# For a missing value, the set includes the values that it might have.

for count in (0, 2, 6, 12):
    gaps = X_test.copy()
    gaps[:, 13 - count :] = np.nan
    sizes, epistemic = (
        clf.predict_set(gaps).sum(1).mean(),
        clf.uncertainty(gaps)["epistemic"].mean(),
    )
    print(f"{count:2} of 13 columns missing: {sizes:.2f} classes per set, EU {epistemic:.2f} bits")
