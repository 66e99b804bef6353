"""Several annotators per row: credal sets that hold the distribution of their votes as often as asked for.

Handwritten digits of scikit-learn; the votes of seven annotators are drawn from what a second, softer model sees in
each image. A CreINN-D learns from the most frequent vote, and is calibrated by shares of votes. Takes a few seconds.

    python examples/annotators.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from creinn.sklearn import CreINNClassifier

ANNOTATORS, COVERAGE = 7, 0.9


def main() -> None:
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    x, y = x[order], y[order]
    opinion = LogisticRegression(C=1e-4, max_iter=1000).fit(x, y).predict_proba(x)
    shares = np.stack([rng.multinomial(ANNOTATORS, p / p.sum()) for p in opinion]) / ANNOTATORS
    train, calibration, test = slice(0, 800), slice(800, 1200), slice(1200, None)
    clf = CreINNClassifier(epochs=30, random_state=0).fit(x[train], shares[train].argmax(1))
    clf.calibrate(x[calibration], shares[calibration], coverage=COVERAGE)
    narrow = clf.credal_set(x[test])
    wide = narrow.widened()
    for name, sets in (("predicted", narrow), ("widened", wide)):
        held = sets.contains(shares[test]).double().mean()
        width, entropy = sets.width.mean(), sets.total.mean()
        print(f"{name:9} sets hold {held:.3f} of the votes; mean width {width:.3f}, upper entropy {entropy:.2f} bits")


if __name__ == "__main__":
    main()
