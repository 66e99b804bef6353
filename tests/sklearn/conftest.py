"""An estimator that is quick to fit, and wines to fit it on."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from creinn.sklearn import CreINNClassifier


@pytest.fixture(scope="session")
def quick():
    """Builds an estimator of few epochs with further options."""

    def build(**options):
        return CreINNClassifier(
            **{
                "hidden_layer_sizes": (16,),
                "max_iter": 20,
                "learning_rate": 0.01,
                "random_state": 0,
                **options,
            }
        )

    return build


@pytest.fixture(scope="session")
def wine():
    X, y = load_wine(return_X_y=True)
    names = np.array(["barolo", "grignolino", "barbera"])
    return train_test_split(X, names[y], stratify=y, test_size=0.3, random_state=0)


@pytest.fixture(scope="session")
def fitted(quick, wine):
    train, _, y, _ = wine
    return quick(max_iter=40).fit(train, y)
