"""What is done to a network as a graph of known layers and functions.

In: any module. Out: its interval twin, a description that can be saved, its inference form, or a file for other
programs. Read in this order: ``trace``, ``convert``, ``describe``, ``fold``, ``native``, ``compile``, ``export``.
"""
