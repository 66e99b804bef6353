"""What the page of the demo says: one explanation per figure; names in braces are filled in."""

LEAD = """
Six classifiers of one architecture (a ResNet-8) learned the digits 0 to {last} from {train} images of 8 by 8 pixels.
They were asked about {test} further images of these digits, {near} images of digits they have never seen, and {far}
patches of photographs.
"""

MODELS = """
SNN is an ordinary network; the Deep Ensemble averages {snns} of them. A CreINN predicts a credal set: an interval of
probability for each class. In the paper's form it has an interval for each weight; its ensemble averages the intervals
of {creinns} CreINNs, and so has about as many parameters as the Deep Ensemble. CreINN-D is the recommended form: an
ordinary network, with batch norm on its logits, whose credal sets grow with the distance of an image's features from
those of the training images; its ensemble averages {creinns} of them. A CreINN-D learns from five sixths of the
training images, and chooses the scale of the distance on the others. The columns of single networks show mean ±
standard deviation over all that were trained; each ensemble was made once. All numbers are from images that were not
used in training.
"""

NUMBERS = """
AU, EU and TU are aleatoric, epistemic and total uncertainty: ambiguity of the image itself, lack of knowledge, and both
together. AUARC is the mean accuracy when ever more of the least certain images are put aside; 1 is best. AUROC is the
chance that an image out of distribution gets a higher uncertainty than a test digit; 0.5 is guessing. AUPRC is the
average precision of the same detection; guessing gives {chance:.3f} here. The set of classes holds what the credal set
does not rule out ({rule}); its coverage is the share of test digits whose true class is in it. A dash means that a
model has no such quantity: one network has no epistemic uncertainty, and networks without credal sets decide for one
class.
"""

REJECTION = """
Each curve shows the accuracy on the test digits that are kept when the least certain ones are rejected first. A measure
that knows where its model errs makes the curve rise quickly to 1; a measure that knows nothing leaves it flat. Towards
the right few images are left, so that single ones move the curve. The first of the single networks is drawn.
"""

EPISTEMIC = """
How epistemic uncertainty is distributed over test digits, held-out digits and photographs; each bar is a share of its
group. The better a model knows what it does not know, the further the held-out digits and photographs lie to the right
of the test digits. The scales of the panels differ, as the measures do: the Deep Ensemble's is the disagreement of its
members, a CreINN's the gap between the greatest and the least entropy in its credal set.
"""

TOTAL = """
The same for total uncertainty: the entropy of the mean prediction for the SNN and the Deep Ensemble, the greatest
entropy in the credal set for the CreINNs.
"""

SIMPLEX = """
Each triangle holds all distributions over three possibilities: the two digits that the first CreINN-D finds most
probable for the image (by the intersection probability), and any other digit. The probabilities of all other digits are
added up, which shows the credal set over all classes exactly as it looks from these three; nothing is left out or
renormalised. A corner is certainty. The shaded polygon is the credal set, dashed lines are its bounds, and the diamond
is the intersection probability, by which it decides. A small set near a corner is confident, a small set in the
middle is ambiguous, and a large set does not know.
"""

GALLERY = """
Images with the least and the greatest total uncertainty of the CreINN-D ensemble. Beside each image stand the
probability intervals of the classes, from lower to upper bound; the orange mark is the intersection probability. Point
at a bar to read its bounds.
"""

TRAINING = """
Loss and accuracy on the training images, and the mean width of probability intervals, epoch by epoch, for the first
network of each kind; dashed, on the images that a CreINN-D keeps apart. The width of CreINN-D is 0 here: its distance
is fitted when the training has ended.
"""

RADII = """
Radii of the weights in the last layer of the first CreINN of the paper's form: each weight is an interval of its centre
plus or minus the radius. Weights without colour are ordinary numbers.
"""

ORIGIN = """
The digits and photographs ship with scikit-learn; nothing was downloaded. All networks were trained with the same
settings; no setting was tuned to make foreign images easier to detect. The same command gives the same numbers on the
same machine.
"""
