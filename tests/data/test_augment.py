"""Random crops and flips: every outcome occurs, bounds are cut alike, seeds decide."""

import pytest
import torch

from creinn.data import RandomCropFlip
from creinn.interval import Interval


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
def test_each_image_is_one_of_all_outcomes_and_all_occur(flip, dtype):
    image = torch.arange(1, 25).reshape(2, 3, 4).to(dtype)
    outcomes = list(all_outcomes(image, 1, flip))
    got = RandomCropFlip(padding=1, flip=flip)(image.expand(1000, -1, -1, -1), seeded())
    assert got.dtype == dtype
    assert got.is_contiguous()
    hits = torch.stack([(got == outcome).flatten(1).all(1) for outcome in outcomes])
    assert bool((hits.sum(0) == 1).all())
    expected = 1000 / len(outcomes)
    assert bool(((hits.sum(1) > expected / 3) & (hits.sum(1) < expected * 3)).all())


def test_padding_zero_without_flip_changes_nothing():
    x = torch.rand(3, 1, 5, 4, generator=seeded())
    assert torch.equal(RandomCropFlip(padding=0, flip=False)(x, seeded()), x)


def test_both_bounds_are_cut_alike():
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


def test_samples_differ_and_seeds_decide():
    x = torch.rand(1, 1, 8, 8, generator=seeded()).expand(20, -1, -1, -1)
    augment = RandomCropFlip()
    got = augment(x, seeded(1))
    assert torch.equal(got, augment(x, seeded(1)))
    assert not torch.equal(got, augment(x, seeded(2)))
    assert len({tuple(image.flatten().tolist()) for image in got}) > 10


def test_errors_name_the_cause():
    with pytest.raises(ValueError, match="padding must be at least 0, but is -1"):
        RandomCropFlip(padding=-1)
    with pytest.raises(ValueError, match=r"Images must have shape .* but have \(3, 4, 4\)"):
        RandomCropFlip()(torch.zeros(3, 4, 4), seeded())
