"""Scores and labels in, numbers out; knows no model.

A score is any number per sample that is higher where the prediction is less certain. NumPy arrays, torch tensors and
lists are taken alike; floats and NumPy arrays are given.
"""

from creinn.evaluation.ood import OODDetection, ood_detection
from creinn.evaluation.rejection import AccuracyRejection, accuracy_rejection, auarc
from creinn.evaluation.shift import RelativeIncrease, relative_increase

__all__ = [
    "AccuracyRejection",
    "OODDetection",
    "RelativeIncrease",
    "accuracy_rejection",
    "auarc",
    "ood_detection",
    "relative_increase",
]
