"""Tests of the preparation of images."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from creinn.interval import Interval
from experiments.definition import Images, Shift, Training
from experiments.preparation import (
    CropFlip,
    Normalisation,
    divide,
    network_inputs,
    normalisation,
    prepare,
    prepare_all,
)

FASHION = Images(name="fashion-mnist", split="train")


def test_prepared_images_match_files(tiny_data, tmp_path):
    prepared = prepare(FASHION, tiny_data, tmp_path, complete=False)
    data = prepared.read()
    assert prepared.shape == (60, 1, 28, 28)
    assert data.counts == (6,) * 10
    assert data.classes[0] == "T-shirt/top"
    assert data.inputs.dtype == torch.uint8


def test_identity_depends_on_content(tiny_data, tmp_path):
    first = prepare(FASHION, tiny_data, tmp_path, complete=False)
    assert prepare(FASHION, tiny_data, tmp_path / "b", complete=False).digest == first.digest
    drawn = prepare(replace(FASHION, count=30), tiny_data, tmp_path, complete=False)
    assert drawn.digest != first.digest
    assert drawn.read().counts == (3,) * 10
    assert (
        prepare(replace(FASHION, count=30, seed=1), tiny_data, tmp_path, complete=False).digest
        != drawn.digest
    )


def test_shuffle_preserves_labels(tiny_data, tmp_path):
    plain = prepare(FASHION, tiny_data, tmp_path, complete=False).read()
    mixed = prepare(replace(FASHION, shuffled=True), tiny_data, tmp_path, complete=False).read()
    assert not torch.equal(plain.labels, mixed.labels)

    def pairs(data):
        return sorted(
            (int(y), x.numpy().tobytes()) for x, y in zip(data.inputs, data.labels, strict=True)
        )

    assert pairs(plain) == pairs(mixed)


def test_subset_of_classes_is_renumbered(tiny_data, tmp_path):
    everything = prepare(FASHION, tiny_data, tmp_path, complete=False).read()
    some = prepare(replace(FASHION, classes=(7, 2)), tiny_data, tmp_path, complete=False).read()
    assert some.classes == (everything.classes[2], everything.classes[7])
    for number, before in enumerate((2, 7)):
        assert torch.equal(
            some.inputs[some.labels == number], everything.inputs[everything.labels == before]
        )


def test_incomplete_copy_raises(tiny_data, tmp_path):
    with pytest.raises(ValueError, match="not a whole copy of fashion-mnist"):
        prepare(FASHION, tiny_data, tmp_path)


def test_other_image_shape_raises(tiny_data, tmp_path, tiny):
    other = replace(tiny, ood=(replace(tiny.ood[0], size=14),))
    with pytest.raises(ValueError, match=r"\(1, 14, 14\)"):
        prepare_all(other, tiny_data, tmp_path, complete=False)


def test_train_val_split(tiny_data, tmp_path):
    data = prepare(FASHION, tiny_data, tmp_path, complete=False).read()
    train, validation = divide(data, Training())
    assert (train.counts, validation.counts) == ((5,) * 10, (1,) * 10)
    assert not {x.numpy().tobytes() for x in train.inputs} & {
        x.numpy().tobytes() for x in validation.inputs
    }


def test_normalization_of_training_images(tiny, tiny_data, tmp_path):
    data = prepare(FASHION, tiny_data, tmp_path, complete=False).read()
    found = normalisation(tiny, data)
    pixels = data.inputs.double().numpy() / 255
    assert found.mean == pytest.approx((pixels.mean(),))
    assert found.std == pytest.approx((pixels.std(),))
    x = network_inputs(data, None, found)
    assert float(x.mean()) == pytest.approx(0, abs=1e-5)
    assert float(x.std()) == pytest.approx(1, abs=1e-3)
    fixed = replace(tiny, mean=(0.5,), std=(0.25,))
    assert normalisation(fixed, data) == Normalisation((0.5,), (0.25,))


@pytest.mark.parametrize("shift", [Shift("noise", 0, 0.08), Shift("brightness", 0.1, 0.3)], ids=str)
def test_shifted_images_are_intervals(tiny_data, tmp_path, shift):
    data = prepare(FASHION, tiny_data, tmp_path, complete=False).read()
    normalise = Normalisation((0.5,), (0.25,))
    found = network_inputs(data, shift, normalise)
    assert isinstance(found, Interval)
    # brightness of grey images acts as noise
    for bound, level in ((found.lower, shift.low), (found.upper, shift.high)):
        expected = (np.clip(data.inputs.numpy() / 255 + level, 0, 1) - 0.5) / 0.25
        np.testing.assert_allclose(bound.numpy(), expected, atol=1e-5)


def test_augmentation_of_intervals():
    normalise = Normalisation((0.25, 0.5, 0.5), (0.5, 0.5, 0.25))
    white = normalise(torch.ones(64, 3, 8, 8))
    augment = CropFlip(normalise, flip=True)
    out = augment(white, torch.Generator().manual_seed(0))
    for channel, black in enumerate((-0.5, -1.0, -2.0)):
        values = out[:, channel].unique()
        torch.testing.assert_close(values, torch.tensor([black, white[0, channel, 0, 0].item()]))
    interval = augment(Interval(white - 1, white), torch.Generator().manual_seed(0))
    torch.testing.assert_close(interval.upper, out)
    assert bool((interval.lower <= interval.upper).all())
