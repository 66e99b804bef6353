"""Classifiers: CreINN, its ensembles, and the base class of all methods."""
