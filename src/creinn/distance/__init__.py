"""Radii that grow with the distance from the training data.

This is an extension of the paper. The package works on tensors of features and does not depend on a
model.
"""
