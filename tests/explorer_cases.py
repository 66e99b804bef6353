"""Samples for the tests of the explorer: credal sets of five classes, of rows of a table and of images."""

import json
import re

import numpy as np
import torch

from creinn.credal.credal_set import CredalSet
from creinn.report.explorer import Samples

CLASSES = ["ant", "bee", "</script><b>cat", "dog \"x\" 'y'", "eel & <!--"]
CELLS = [[f"{i / 10}", "<i>red</i>" if i % 2 else "blue"] for i in range(30)]


def credal_sets(count, width, seed, classes=5):
    """Sets around random distributions, with intervals of random widths."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(2 * torch.randn(count, classes, generator=generator, dtype=torch.float64), -1)
    radius = width * torch.rand(count, 1, generator=generator, dtype=torch.float64) * p.sqrt()
    return CredalSet((p - radius).clamp_min(0), (p + radius).clamp_max(1))


def table_samples():
    """Thirty rows in distribution, every fourth of which is wrong; predictions at three widths."""
    own = credal_sets(30, 0.3, seed=0)
    labels = torch.where(torch.arange(30) % 4 == 0, (own.label + 1) % 5, own.label)
    widths = {
        "0 deviations": own,
        "0.5 deviations": credal_sets(30, 0.6, 0),
        "1 deviations": credal_sets(30, 0.9, 0),
    }
    names = [f"row {i + 1}" for i in range(30)]
    columns = {"columns": ["height", "colour"], "cells": CELLS}
    return Samples("test.csv", own, names, 90, labels, outside=False, **columns, widths=widths)


def image_samples():
    """Return twelve images that are out of distribution and have no classes."""
    images = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8)).astype(np.uint8)
    names = [f"dark/a long name of a file {i}.png" for i in range(12)]
    return Samples(
        "photographs", credal_sets(12, 0.9, seed=1), names, 12, outside=True, images=images
    )


def record_of(text):
    """The data that a page carries."""
    return json.loads(
        re.search('<script type="application/json">(.*?)</script>', text, re.DOTALL)[1]
    )
