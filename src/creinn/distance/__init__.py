"""Radii that grow with the distance from the training data.

This extension of the paper works on tensors of features and does not depend on a model.
"""
