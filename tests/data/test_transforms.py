"""Batches of images: noise and brightness against a second implementation, order kept, every crop and flip occurs."""

import colorsys
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from creinn.data import RandomCropFlip, brightness, noise, normalize
from creinn.interval import Interval

CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}
NOISE_STRENGTHS = (0, 0.08, 0.12, 0.16, 0.18, 0.2)
BRIGHTNESS_STRENGTHS = (0, 0.05, 0.1, 0.15, 0.2, 0.3)

levels = st.sampled_from([0.0, 1e-40, 2e-38, 1 / 255, 0.5, 254 / 255, 1.0]) | st.floats(
    0, 1, width=32
)
strengths = st.sampled_from([*NOISE_STRENGTHS, *BRIGHTNESS_STRENGTHS, 1.0, -0.25, 1e-9])


def colour(*channels, dtype=torch.float32):
    return torch.tensor(channels, dtype=dtype).reshape(1, -1, 1, 1)


def colours(dtype, n=4000):
    """Random ones, and all corners, edges and greys of a coarse grid."""
    grid = torch.tensor([0, 1 / 255, 0.25, 0.5, 0.9, 254 / 255, 1], dtype=dtype)
    some = torch.rand(n, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    return torch.cat([some, torch.cartesian_prod(grid, grid, grid)]).reshape(-1, 3, 1, 1)


def brightened_by_colorsys(pixel, beta):
    hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
    return colorsys.hsv_to_rgb(hue, saturation, min(max(value + beta, 0.0), 1.0))


@pytest.mark.parametrize("beta", [*BRIGHTNESS_STRENGTHS, -0.1, 1.0])
def test_brightness_matches_second_implementation(beta):
    x = colours(torch.float64)
    expected = torch.tensor(
        [brightened_by_colorsys(p, beta) for p in x.flatten(1).tolist()], dtype=torch.float64
    )
    got = brightness(x, min(beta, 0), max(beta, 0))
    torch.testing.assert_close(
        (got.upper if beta >= 0 else got.lower).flatten(1), expected, rtol=0, atol=1e-12
    )


def test_brightness_by_hand():
    # V = 0.4 becomes 0.6: every channel times 1.5.
    got = brightness(colour(0.2, 0.4, 0.0), 0, 0.2)
    torch.testing.assert_close(got.upper.flatten(), torch.tensor([0.3, 0.6, 0.0]))
    torch.testing.assert_close(got.lower.flatten(), torch.tensor([0.2, 0.4, 0.0]))
    # Saturated: V = 1 cannot be raised. Black has no hue: it becomes grey.
    assert brightness(colour(1.0, 0.5, 0.25), 0, 0.3).upper.flatten().tolist() == [1.0, 0.5, 0.25]
    torch.testing.assert_close(
        brightness(colour(0.0, 0.0, 0.0), 0.1, 0.3).upper.flatten(), torch.full((3,), 0.3)
    )


def test_noise_by_hand():
    got = noise(colour(0.0, 0.5, 0.95), 0.08, 0.12)
    torch.testing.assert_close(got.lower.flatten(), torch.tensor([0.08, 0.58, 1.0]))
    torch.testing.assert_close(got.upper.flatten(), torch.tensor([0.12, 0.62, 1.0]))


@pytest.mark.parametrize("shift", [noise, brightness])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_bounds_are_monotone_in_strength(shift, dtype):
    x = colours(torch.float64).to(dtype)
    ends = [-1, -0.2, 0, 1e-7, 0.05, 0.05 + 1e-6, 0.08, 0.1, 0.3, 0.9, 1]
    bounds = [shift(x, end, end).lower for end in ends]
    for lower, upper in pairwise(bounds):
        assert bool((lower <= upper).all())
    assert bool(((torch.stack(bounds) >= 0) & (torch.stack(bounds) <= 1)).all())
    assert torch.equal(shift(x, 0, 0.1).lower, x)
    assert bounds[0].dtype == dtype


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(levels, min_size=3, max_size=3),
    strengths,
    strengths,
    st.sampled_from([torch.float32, torch.float64]),
)
def test_brightness_gives_valid_intervals(channels, one, other, dtype):
    low, high = sorted((one, other))
    x = colour(*channels, dtype=dtype)
    for shift in (noise, brightness):
        got = shift(
            x, low, high
        )  # Interval raises an error if the bounds are not finite or not ordered
        assert bool((got.lower <= got.upper).all())
        for strength in (min(low + (high - low) * t / 4, high) for t in range(5)):
            assert bool(got.contains(shift(x, strength, strength).lower).all())


def test_brightness_of_single_channel():
    grey = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    grey[0, 0, 0, 0], grey[0, 0, 0, 1] = 0, 1
    one, three = brightness(grey, 0.05, 0.3), brightness(grey.expand(-1, 3, -1, -1), 0.05, 0.3)
    torch.testing.assert_close(one.upper.expand(-1, 3, -1, -1), three.upper)
    torch.testing.assert_close(one.upper, noise(grey, 0.05, 0.3).upper)
    torch.testing.assert_close(one.lower, noise(grey, 0.05, 0.3).lower)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalize_preserves_order(dtype):
    x = colours(torch.float64).to(dtype)
    box = noise(x, 0, 1e-7)
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
def test_invalid_arguments_raise():
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(TypeError, match="uint8"):
        noise(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), 0, 0.1)
    with pytest.raises(ValueError, match=r"but have \(3, 4, 4\)"):
        noise(x[0], 0, 0.1)
    for bad in (1.5, -0.25, float("nan")):
        y = x.clone()
        y[1, 2, 3, 0] = bad
        with pytest.raises(
            ValueError,
            match=rf"Pixels must lie in \[0, 1\], but one is {bad} at index \(1, 2, 3, 0\)",
        ):
            brightness(y, 0, 0.1)
    with pytest.raises(ValueError, match="mu1"):
        noise(x, 0.2, 0.1)
    with pytest.raises(ValueError, match="beta1"):
        brightness(x, 0, float("nan"))
    with pytest.raises(ValueError, match="these have 2 channels"):
        brightness(x[:, :2], 0, 0.1)
    with pytest.raises(ValueError, match=r"\[0\.5, 0\.0, 0\.5\]"):
        normalize(x, 0, (0.5, 0, 0.5))
    with pytest.raises(ValueError, match=r"std must be positive, but is \[nan\]"):
        normalize(x, 0, float("nan"))
    with pytest.raises(ValueError, match=r"\(2, 3, 4, 4\)"):
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
    with pytest.raises(ValueError, match="padding must be at least 0, but is -1"):
        RandomCropFlip(padding=-1)
    with pytest.raises(ValueError, match=r"\(3, 4, 4\)"):
        RandomCropFlip()(torch.zeros(3, 4, 4), seeded())
