"""
A table
=======

Wines of three growers, thirteen measured numbers each. The estimator is one of scikit-learn's kind, so that it works in
pipelines and searches; what it gives beyond is an interval for each probability.
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
# Move a wine step by step away from all that were seen: every number is multiplied by a factor. The intervals
# grow with the distance from the training data, until nothing is ruled out. The probability alone would not say so.

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
# A decision may name several classes. Where it names one, the case is decided; where it names more, a person looks.

sets = clf.predict_set(X_test)
print(f"{(sets.sum(1) == 1).mean():.0%} of the test wines get one class")
print(f"the set holds the true class of {sets[np.arange(len(y_test)), y_test].mean():.0%}")
print("a wine like no other:", clf.predict_set(3 * X_test[:1])[0])

# %%
# A missing number is taken for all the values it might have: sets grow with what is missing.

for count in (0, 2, 6, 12):
    gaps = X_test.copy()
    gaps[:, 13 - count :] = np.nan
    sizes, epistemic = (
        clf.predict_set(gaps).sum(1).mean(),
        clf.uncertainty(gaps)["epistemic"].mean(),
    )
    print(f"{count:2} of 13 columns missing: {sizes:.2f} classes per set, EU {epistemic:.2f} bits")
