"""Lower and upper bounds in two folders or two tables: matched by name, mismatches named."""

import numpy as np
import pytest
import torch
from PIL import Image

from creinn.data.pairs import read_pair
from creinn.interval import Interval


@pytest.fixture
def folders(tmp_path):
    rng = np.random.default_rng(0)
    for i, name in enumerate(["a/0.png", "a/1.png", "b/0.png"]):
        low = rng.integers(0, 200, (8, 6, 3), dtype=np.uint8)
        for side, pixels in (("low", low), ("high", low + np.uint8(20 * i))):
            (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / side / name)
    return tmp_path / "low", tmp_path / "high"


def test_files_of_one_name_are_the_bounds_of_one_image(folders):
    x, lower, upper = read_pair(*folders)
    assert isinstance(x, Interval)
    assert x.shape == (3, 3, 8, 6)
    assert lower.files == upper.files == ["a/0.png", "a/1.png", "b/0.png"]
    for i in range(3):
        torch.testing.assert_close(x.width[i], torch.full((3, 8, 6), 20 * i / 255))
    stored = np.array(Image.open(folders[0] / "b" / "0.png"))
    torch.testing.assert_close(x.lower[2], torch.from_numpy(stored).permute(2, 0, 1) / 255)


def test_stretching_and_grey_keep_order(folders):
    x, _, _ = read_pair(*folders, size=5, channels=1)
    assert x.shape == (3, 1, 5, 5)
    assert bool((x.lower <= x.upper).all())


def test_first_mismatch_is_named(folders):
    low, high = folders
    (high / "a" / "1.png").rename(high / "a" / "2.png")
    with pytest.raises(ValueError, match=r"low has a/1\.png, but .*high has not\. Both must hold the same file names"):
        read_pair(low, high)
    (low / "a" / "1.png").unlink()
    with pytest.raises(ValueError, match=r"high has a/2\.png, but .*low has not"):
        read_pair(low, high)


def test_swapped_folders_are_named(folders):
    message = (
        r"out of order in a/1\.png: at channel 0, row 0, column 0 the lower one is \d+, the upper one \d+\. Were the"
    )
    with pytest.raises(ValueError, match=message):
        read_pair(*reversed(folders))


def test_other_sizes_are_named(folders):
    for file in folders[1].rglob("*.png"):
        Image.new("RGB", (3, 2)).save(file)
    with pytest.raises(ValueError, match=r"low has images of 6 x 8 pixels, but .*high of 3 x 2\. Give a size"):
        read_pair(*folders)


def test_a_bound_that_cannot_be_read_takes_the_other_with_it(folders):
    low, high = folders
    (low / "a" / "0.png").write_bytes(b"x")
    (high / "b" / "0.png").write_bytes(b"x")
    x, lower, upper = read_pair(low, high, strict=False)
    assert lower.files == upper.files == ["a/1.png"]
    torch.testing.assert_close(x.width, torch.full((1, 3, 8, 6), 20 / 255))
    assert len(lower.unreadable) == len(upper.unreadable) == 1
    with pytest.raises(ValueError, match=r"low: a/0\.png cannot be read as an image"):
        read_pair(low, high)
    (low / "a" / "1.png").write_bytes(b"x")
    with pytest.raises(ValueError, match="have no file of which both bounds can be read"):
        read_pair(low, high, strict=False)
