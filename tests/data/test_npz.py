import numpy as np
import pytest
import torch

from creinn.data import npz

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 2])


@pytest.mark.parametrize("keys", [("x", "y"), ("images", "labels")])
def test_reads_channels_last_by_default(tmp_path, keys):
    np.savez(tmp_path / "toy.npz", **dict(zip(keys, (IMAGES, LABELS), strict=True)))
    data = npz(tmp_path / "toy.npz")
    assert (data.name, data.classes, data.split) == ("toy", ("0", "1", "2"), "")
    assert torch.equal(data.inputs, torch.from_numpy(IMAGES).permute(0, 3, 1, 2))
    assert data.labels.tolist() == [2, 0, 1, 2]


@pytest.mark.parametrize("keys", [("x_test", "y_test"), ("test_images", "test_labels")])
def test_parts_and_compressed_files(tmp_path, keys):
    other = {"x_train": IMAGES[:1], "y_train": LABELS[:1]}
    np.savez_compressed(tmp_path / "toy.npz", **other, **dict(zip(keys, (IMAGES, LABELS[:, None]), strict=True)))
    data = npz(tmp_path / "toy.npz", "test", classes=["a", "b", "c", "d"], name="mine")
    assert (data.name, data.split, data.counts) == ("mine", "test", (1, 1, 2, 0))


def test_channels_first_and_grey(tmp_path):
    np.savez(tmp_path / "a.npz", x=IMAGES.transpose(0, 3, 1, 2), y=LABELS)
    assert torch.equal(npz(tmp_path / "a.npz", channels="first").inputs, torch.from_numpy(IMAGES).permute(0, 3, 1, 2))
    np.savez(tmp_path / "b.npz", x=IMAGES[..., 0], y=LABELS)
    for channels in ("first", "last"):
        assert torch.equal(npz(tmp_path / "b.npz", channels=channels).inputs[:, 0], torch.from_numpy(IMAGES[..., 0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": IMAGES / 255}, r"a\.npz, x must be bytes \(uint8\) from 0 to 255, but is float64"),
        ({"x": IMAGES.transpose(0, 3, 1, 2)}, r"has shape \(4, 3, 5, 6\): 1 or 3 channels are looked for on axis 3"),
        ({"x": IMAGES[0, 0]}, r"has shape \(6, 3\)"),
        ({"y": LABELS / 2}, r"a\.npz, y must be whole numbers, one per image, but is float64 of shape \(4,\)"),
        ({"y": np.eye(4, dtype=int)}, r"int64 of shape \(4, 4\)"),
        ({"y": LABELS[:3]}, "one label per input"),
        ({"y": LABELS - 1}, "label 1 is -1"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, change, message):
    np.savez(tmp_path / "a.npz", **{"x": IMAGES, "y": LABELS, **change})
    with pytest.raises(ValueError, match=message):
        npz(tmp_path / "a.npz")


def test_wrong_keys_and_arguments_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=IMAGES, z=LABELS)
    with pytest.raises(ValueError, match=r"a\.npz has the keys x, z; looked for x and y or images and labels"):
        npz(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="looked for x_val and y_val or val_images and val_labels"):
        npz(tmp_path / "a.npz", "val")
    np.savez(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    with pytest.raises(ValueError, match="channels must be 'last' or 'first', but is 'middle'"):
        npz(tmp_path / "a.npz", channels="middle")
    with pytest.raises(FileNotFoundError):
        npz(tmp_path / "nowhere.npz")


def test_truncated_files_and_pickled_objects_are_refused(tmp_path):
    path = tmp_path / "toy.npz"
    np.savez(path, x=IMAGES, y=LABELS)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"toy\.npz cannot be read as a NumPy archive: .* truncated or damaged"):
        npz(path)
    np.savez(path, x=IMAGES, y=np.array([{}] * 4, dtype=object))
    with pytest.raises(ValueError, match="Object arrays cannot be loaded when allow_pickle=False"):
        npz(path)
    np.save(tmp_path / "lone.npy", IMAGES)
    with pytest.raises(ValueError, match=r"lone\.npy cannot be read as a NumPy archive"):
        npz(tmp_path / "lone.npy")
