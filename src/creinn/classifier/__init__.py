"""A network and a head that turns its logits into a prediction: CreINN, CreINN-D and their ensemble.

In: a network, inputs. Out: credal sets. Read in this order: ``base`` (what every classifier shares) with ``inputs`` and
``logits``, ``creinn``, ``places`` (where in a network the distance is measured), ``distance``, ``scale``; ``methods``
is the table of all methods, rivals among them, and loads without torch.
"""
