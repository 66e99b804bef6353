"""A network and a head that turns its logits into a prediction: CreINN, CreINN-D and their ensemble.

In: a network, inputs. Out: credal sets. Read in this order: ``base`` (what every classifier shares) with ``inputs`` and
``logits``, ``creinn``, ``places`` (where in a network the distance is measured), ``distance``, ``scale``.
"""

from creinn.classifier.base import Classifier, Inputs
from creinn.classifier.creinn import CreINN, Ensemble

__all__ = ["Classifier", "CreINN", "Ensemble", "Inputs"]
