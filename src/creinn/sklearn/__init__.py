"""The estimator for scikit-learn.

In: arrays or intervals, labels. Out: labels, probabilities, intervals, sets. Read in this order: ``estimator``,
``preparation`` (scaling and missing numbers).
"""

from creinn.sklearn.estimator import CreINNClassifier

__all__ = ["CreINNClassifier"]
