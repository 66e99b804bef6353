"""Classifiers: CreINN, ensembles of CreINNs, and the base class of all methods.

- ``base``: predictions in batches, with ``inputs`` for the data and ``network`` for the network.
- ``credal``: the base class of classifiers that predict credal sets, and ``Ensemble``.
- ``creinn``: ``CreINN``, which uses ``temperature`` and :mod:`creinn.distance`.
- ``calibration``: conformal calibration, and ``fitted_on``, which detects changes of a model.
- ``compile_cache``: compiled models for faster predictions.
- ``methods``: the table of all methods.
"""
