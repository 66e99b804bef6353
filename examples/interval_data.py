"""
Interval measurements
=====================

A measured number is known up to the error of the instrument. An interval network accepts the lower
and the upper end of this range. The credal set then includes the error of the measurement.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from creinn import Interval
from creinn.sklearn import CreINNClassifier

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
step = X_train.std(0)


def measured(rows: np.ndarray, error: float) -> Interval:
    """Return intervals with this error in standard deviations of the columns."""
    low, high = rows - error * step, rows + error * step
    return Interval(torch.from_numpy(low), torch.from_numpy(high))


# %%
# If the data are intervals, the estimator builds an interval network. With ``mode="sound"``, the
# credal set contains the prediction for every value inside the intervals.

clf = CreINNClassifier(hidden_layer_sizes=(32,), max_iter=40, mode="sound", random_state=0).fit(
    measured(X_train, 0.05), y_train
)
print(f"accuracy on points {clf.score(X_test, y_test):.3f}")

# %%
# The same rows are measured with larger errors. The intervals of the probabilities grow, and more
# rows keep both classes. The sets are wide, because the guarantee includes all 30 columns.

errors = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2]
widths, undecided = [], []
for error in errors:
    x = measured(X_test, error)
    bounds = clf.predict_interval(x)
    widths.append(np.mean(bounds[..., 1] - bounds[..., 0]))
    undecided.append(np.mean(clf.predict_set(x).all(1)))
    print(f"error {error:.2f}: accuracy {clf.score(x, y_test):.3f}, undecided {undecided[-1]:.0%}")

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(errors, widths, "o-", label="mean width of the probability")
axes.plot(errors, undecided, "s-", label="share of rows with both classes")
axes.set_xlabel("error of the instrument, in deviations of the column")
axes.legend()
plt.show()

# %%
# A column without error has two equal ends. Here one column is unknown in its whole range, and the
# other columns are exact.

low, high = X_test[:5].copy(), X_test[:5].copy()
low[:, 7], high[:, 7] = X_train[:, 7].min(), X_train[:, 7].max()
print(clf.predict_interval(Interval(torch.from_numpy(low), torch.from_numpy(high)))[:, 1].round(3))
