"""A network and a head that turns its logits into a prediction: CreINN, CreINN-D and their ensemble.

In: a network, inputs. Out: credal sets. Read in this order: ``base`` (what every classifier shares; ``predict`` runs
its batches) with ``inputs`` (where these come from) and ``network`` (logits and features), ``creinn`` with ``credal``,
``head`` and ``temperature``; ``radius`` (how sets grow away from the data) with ``places``, ``distance``, ``fitting``,
``moments`` and ``sample``; ``calibration`` (sets with a guarantee); ``kept`` (compiled forms while weights stay);
``methods``, the table of all methods, which loads without torch.
"""
