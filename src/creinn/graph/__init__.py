"""Transformations of networks that are graphs of known layers and functions.

The modules convert a network to an interval network, describe it as JSON, fold it for inference,
or export it to a file.
"""
