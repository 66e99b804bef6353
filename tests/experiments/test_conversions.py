"""Tests of the conversions of images: noise, brightness, channels and size."""

import colorsys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from creinn.data import Dataset
from experiments.conversions import brightness, noise, resize, to_grey, to_rgb

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
        got = shift(x, low, high)  # Interval refuses bounds that are NaN, infinite or out of order
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


@pytest.fixture
def photos():
    pixels = torch.randint(
        256, (3, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    return Dataset("photos", pixels, torch.tensor([0, 1, 0]), ("a", "b"))


def test_grey_matches_pillow(photos):
    grey = to_grey(photos)
    assert grey.inputs.shape == (3, 1, 32, 32)
    for image, colour in zip(grey.inputs, photos.inputs, strict=True):
        np.testing.assert_array_equal(
            image[0], np.asarray(Image.fromarray(colour.permute(1, 2, 0).numpy()).convert("L"))
        )
    assert torch.equal(to_grey(grey).inputs, grey.inputs)


def test_grey_resize_matches_pillow(photos):
    small = to_grey(photos, size=28)
    assert small.inputs.shape == (3, 1, 28, 28)
    for image, grey in zip(small.inputs, to_grey(photos).inputs, strict=True):
        expected = np.asarray(
            Image.fromarray(grey[0].numpy()).resize((28, 28), Image.Resampling.BILINEAR)
        )
        assert np.abs(image[0].numpy().astype(int) - expected).max() <= 1


def test_rgb_repeats_grey_and_resize_preserves_constants(photos):
    grey = to_grey(photos)
    assert torch.equal(to_rgb(grey).inputs, grey.inputs.repeat(1, 3, 1, 1))
    assert torch.equal(to_rgb(photos).inputs, photos.inputs)
    levels = torch.arange(10, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 4, 4)
    flat = resize(Dataset("flat", levels, torch.zeros(10).long(), ("a",)), 9)
    assert flat.inputs.shape == (10, 3, 9, 9)
    assert flat.inputs[:, 0, 0, 0].tolist() == list(range(10))
    assert resize(photos, 32) is photos


def test_invalid_images_raise(photos):
    two = Dataset("two", torch.zeros(1, 2, 4, 4, dtype=torch.uint8), torch.tensor([0]), ("a",))
    with pytest.raises(ValueError, match="grey"):
        to_grey(two)
    with pytest.raises(ValueError, match="RGB"):
        to_rgb(two)
    with pytest.raises(ValueError, match="size"):
        resize(photos, 0)


@pytest.mark.usefixtures("unchecked_shapes")
def test_invalid_images_and_strengths_raise():
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(TypeError, match="uint8"):
        noise(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), 0, 0.1)
    with pytest.raises(ValueError, match=r"\(3, 4, 4\)"):
        noise(x[0], 0, 0.1)
    for bad in (1.5, -0.25, float("nan")):
        y = x.clone()
        y[1, 2, 3, 0] = bad
        with pytest.raises(ValueError, match=r"\(1, 2, 3, 0\)"):
            brightness(y, 0, 0.1)
    with pytest.raises(ValueError, match="mu1"):
        noise(x, 0.2, 0.1)
    with pytest.raises(ValueError, match="beta1"):
        brightness(x, 0, float("nan"))
    with pytest.raises(ValueError, match="2 channels"):
        brightness(x[:, :2], 0, 0.1)
