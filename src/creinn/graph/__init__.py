"""Transformations of networks that are graphs of known layers and functions."""
