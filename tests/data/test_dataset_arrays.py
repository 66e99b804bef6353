"""Arrays of ``.npz`` and ``.npy`` files as memory maps: what NumPy reads, without reading it whole."""

import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from creinn import CreINN, TrainConfig, fit, models
from creinn.data import open_arrays

KINDS = st.sampled_from(["<f4", "<f8", ">f8", "<f2", "|u1", "<i8", ">i4", "|b1"])
ARRAYS = KINDS.flatmap(
    lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


@given(
    st.dictionaries(st.sampled_from(["x", "y", "a name", "é"]), ARRAYS, max_size=3), st.booleans()
)
def test_memory_map_equals_numpy(tmp_path_factory, written, in_columns):
    written = {
        name: np.asfortranarray(array) if in_columns else array for name, array in written.items()
    }
    path = tmp_path_factory.mktemp("arrays") / "a.npz"
    np.savez(path, **written)
    found = open_arrays(path)
    assert list(found) == list(written)
    with np.load(path) as expected:
        for name, array in found.items():
            assert isinstance(array, np.memmap)
            assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape)
            assert array.tobytes() == expected[name].tobytes()
            assert array.flags.f_contiguous == expected[name].flags.f_contiguous
            assert not array.flags.writeable


def test_train_and_predict_from_file(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(x), y=y)
    mapped = open_arrays(tmp_path / "a.npz")
    found = []
    for inputs, classes in ((mapped["x"], mapped["y"]), (torch.from_numpy(x), torch.from_numpy(y))):
        torch.manual_seed(0)
        model = CreINN(models.mlp(4, 3, layers=torch.nn), distance=True)
        fit(
            model,
            (inputs, classes),
            (inputs, classes),
            TrainConfig(epochs=2, batch_size=16, progress=False),
        )
        model.fit_distance(inputs, classes)
        found.append(model.predict(inputs))
    torch.testing.assert_close(found[0].lower, found[1].lower, rtol=0, atol=1e-5)
    assert found[0].width.mean() > 1e-6


def test_invalid_files_raise(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(FileNotFoundError, match=r"a\.npz"):
        open_arrays(path)
    np.savez_compressed(path, x=np.zeros(1000))
    with pytest.raises(
        ValueError,
        match="compressed",
    ):
        open_arrays(path)
    np.savez(path, x=np.array([None, "text"], dtype=object))
    with pytest.raises(ValueError, match=r"x\.npy.*objects"):
        open_arrays(path)
    np.savez(path, x=np.zeros(1000))
    raw = path.read_bytes()
    path.write_bytes(raw[:500])
    with pytest.raises(ValueError, match=r"a\.npz"):
        open_arrays(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no array")
    with pytest.raises(ValueError, match="magic"):
        open_arrays(path)
