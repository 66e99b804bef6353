"""What is done to a network as a graph of known layers and functions.

In: any module. Out: its interval twin, a description that can be saved, or its inference form. Read in this order:
``trace``, ``convert``, ``describe``, ``fold``, ``compile``.
"""
