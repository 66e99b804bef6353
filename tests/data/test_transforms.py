"""Batches of images: normalization keeps the order, and every crop and flip occurs."""

import pytest
import torch

from creinn.data import RandomCropFlip, normalize
from creinn.interval import Interval

CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalize_preserves_order(dtype):
    x = torch.rand(4000, 3, 1, 1, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0] = 0
    box = Interval(x, x + 1e-7)
    got = normalize(box, **CIFAR)
    assert isinstance(got, Interval)
    assert bool((got.lower <= got.upper).all())
    assert not got.nonnegative  # black is below the mean
    torch.testing.assert_close(got.lower, normalize(box.lower, **CIFAR))
    torch.testing.assert_close(got.upper, normalize(box.upper, **CIFAR))
    mean, std = (torch.tensor(CIFAR[k], dtype=dtype).reshape(3, 1, 1) for k in ("mean", "std"))
    torch.testing.assert_close(got.lower, (x - mean) / std)


def test_normalize_by_hand():
    torch.testing.assert_close(
        normalize(torch.tensor([[1.0, 4.0]]), (0, 1), (2, 3)), torch.tensor([[0.5, 1.0]])
    )
    torch.testing.assert_close(normalize(torch.tensor([3.0]), 1, 4), torch.tensor([0.5]))
    point = normalize(Interval.point(torch.ones(1, 2)), 0.5, 0.5)
    assert point.is_point


@pytest.mark.usefixtures("unchecked_shapes")
def test_invalid_means_and_deviations_raise():
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    for std in ((0.5, 0, 0.5), float("nan")):
        with pytest.raises(ValueError, match="std"):
            normalize(x, 0, std)
    with pytest.raises(ValueError, match="mean"):
        normalize(x, (0, 1), 1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def all_outcomes(image, padding, flip):
    """Slowly: every window of the padded image, mirrored or not."""
    channels, height, width = image.shape
    padded = image.new_zeros(channels, height + 2 * padding, width + 2 * padding)
    padded[:, padding : padding + height, padding : padding + width] = image
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            window = padded[:, top : top + height, left : left + width]
            yield window
            if flip:
                yield window.flip(2)


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_all_crops_occur(flip, dtype):
    image = torch.arange(1, 25).reshape(2, 3, 4).to(dtype)
    outcomes = list(all_outcomes(image, 1, flip))
    got = RandomCropFlip(padding=1, flip=flip)(image.expand(1000, -1, -1, -1), seeded())
    assert got.dtype == dtype
    assert got.is_contiguous()
    hits = torch.stack([(got == outcome).flatten(1).all(1) for outcome in outcomes])
    assert bool((hits.sum(0) == 1).all())
    expected = 1000 / len(outcomes)
    assert bool(((hits.sum(1) > expected / 3) & (hits.sum(1) < expected * 3)).all())


def test_zero_padding_without_flip_is_identity():
    x = torch.rand(3, 1, 5, 4, generator=seeded())
    assert torch.equal(RandomCropFlip(padding=0, flip=False)(x, seeded()), x)


def test_bounds_have_the_same_crop():
    lower = torch.rand(50, 3, 8, 8, generator=seeded())
    x = Interval(lower, lower + 0.25)
    augment = RandomCropFlip()
    got = augment(x, seeded(1))
    assert torch.equal(got.lower, augment(x.lower, seeded(1)))
    assert torch.equal(got.upper, augment(x.upper, seeded(1)))
    inside = got.upper > 0
    torch.testing.assert_close(got.width[inside], torch.full_like(got.width[inside], 0.25))
    assert bool((got.lower[~inside] == 0).all())
    assert augment(Interval.point(lower), seeded(1)).is_point


def test_crops_depend_on_the_seed():
    x = torch.rand(1, 1, 8, 8, generator=seeded()).expand(20, -1, -1, -1)
    augment = RandomCropFlip()
    got = augment(x, seeded(1))
    assert torch.equal(got, augment(x, seeded(1)))
    assert not torch.equal(got, augment(x, seeded(2)))
    assert len({tuple(image.flatten().tolist()) for image in got}) > 10


def test_invalid_crops_raise():
    with pytest.raises(ValueError, match="padding"):
        RandomCropFlip(padding=-1)
    with pytest.raises(ValueError, match=r"\(3, 4, 4\)"):
        RandomCropFlip()(torch.zeros(3, 4, 4), seeded())
