"""Tiny data sets, a tiny experiment and its finished run."""

import gzip
import struct
from dataclasses import replace

import numpy as np
import pytest

from experiments.catalogue import EXPERIMENTS
from experiments.definition import Network, Training


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes(), 1))


def write_set(folder, prefix, per_class, seed):
    """Write noisy images of ten classes, in which a bright row encodes the class."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(10, dtype=np.uint8), per_class))
    images = rng.integers(0, 60, (len(labels), 28, 28), dtype=np.uint8)
    images[np.arange(len(labels)), 2 * labels.astype(int) + 4] += 180
    write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", images)
    write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", labels)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory):
    """Return a directory of tiny data sets with the names and formats of the published ones."""
    folder = tmp_path_factory.mktemp("data")
    write_set(folder / "fashion_mnist", "train", 6, seed=0)
    write_set(folder / "fashion_mnist", "t10k", 4, seed=1)
    write_set(folder / "mnist", "t10k", 4, seed=2)
    return folder


@pytest.fixture(scope="session")
def tiny():
    """Return the small Fashion-MNIST experiment with a run time of seconds."""
    small = EXPERIMENTS["fashion-mnist-small"]
    return replace(
        small,
        images=replace(small.images, count=None),
        test=replace(small.test, count=None),
        ood=(replace(small.ood[0], count=None),),
        methods=("snn", "deep-ensemble", "creinn", "creinn-ensemble"),
        network=Network(builder="resnet8", width=2),
        training=Training(epochs=2, batch_size=16, milestones=(1,)),
        seeds=2,
        snn_seeds=None,
    )


@pytest.fixture(scope="session")
def finished(tiny, tiny_data, tmp_path_factory):
    """Return a directory with the results of the tiny experiment, and the outcome of the run."""
    from experiments.run import RunConfig, run_experiment

    out = tmp_path_factory.mktemp("finished")
    return out, run_experiment(tiny, tiny_data, out, RunConfig(complete=False, progress=False))
