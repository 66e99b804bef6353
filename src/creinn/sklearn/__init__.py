"""Scikit-learn classifier with credal sets."""

from creinn.sklearn.estimator import CreINNClassifier

__all__ = ["CreINNClassifier"]
