import numpy as np
import pytest
import torch
from PIL import Image

from creinn.data import interval_folders, interval_tables
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
    data = interval_folders(*folders, split="train")
    assert isinstance(data.inputs, Interval)
    assert data.inputs.shape == (3, 3, 8, 6)
    assert (data.classes, data.labels.tolist(), data.name, data.split) == (("a", "b"), [0, 0, 1], "low", "train")
    for i in range(3):
        torch.testing.assert_close(data.inputs.width[i], torch.full((3, 8, 6), 20 * i / 255))
    stored = np.array(Image.open(folders[0] / "b" / "0.png"))
    torch.testing.assert_close(data.inputs.lower[2], torch.from_numpy(stored).permute(2, 0, 1) / 255)


def test_stretching_and_grey_keep_order(folders):
    data = interval_folders(*folders, size=5, channels=1)
    assert data.inputs.shape == (3, 1, 5, 5)
    assert bool((data.inputs.lower <= data.inputs.upper).all())


def test_first_mismatch_is_named(folders):
    low, high = folders
    (high / "a" / "1.png").rename(high / "a" / "2.png")
    with pytest.raises(ValueError, match=r"low has a/1\.png, but .*high has not\. Both must hold the same file names"):
        interval_folders(low, high)
    (low / "a" / "1.png").unlink()
    with pytest.raises(ValueError, match=r"high has a/2\.png, but .*low has not"):
        interval_folders(low, high)


def test_swapped_folders_are_named(folders):
    message = (
        r"out of order in a/1\.png: at channel 0, row 0, column 0 the lower one is \d+, the upper one \d+\. Were the"
    )
    with pytest.raises(ValueError, match=message):
        interval_folders(*reversed(folders))


def test_other_sizes_are_named(folders):
    for file in folders[1].rglob("*.png"):
        Image.new("RGB", (3, 2)).save(file)
    with pytest.raises(ValueError, match=r"low has images of 6 x 8 pixels, but .*high of 3 x 2\. Give a size"):
        interval_folders(*folders)


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


LOWER = "width,height,kind\n1.0,2,cat\n0.5,-1,dog\n3,3,cat\n"
UPPER = "height,kind,width\n2.5,cat,1.0\n0,dog,0.75\n3,cat,4\n"


@pytest.fixture
def tables(tmp_path):
    def write(lower=LOWER, upper=UPPER):
        (tmp_path / "lower.csv").write_text(lower)
        (tmp_path / "upper.csv").write_text(upper)
        return tmp_path / "lower.csv", tmp_path / "upper.csv", "kind"

    return write


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tables_are_matched_by_column_name(tables, dtype):
    data = interval_tables(*tables(), dtype=dtype)
    assert data.inputs.lower.tolist() == [[1.0, 2.0], [0.5, -1.0], [3.0, 3.0]]
    assert data.inputs.upper.tolist() == [[1.0, 2.5], [0.75, 0.0], [4.0, 3.0]]
    assert data.inputs.dtype == dtype
    assert (data.classes, data.labels.tolist(), data.name) == (("cat", "dog"), [0, 1, 0], "lower")


def test_the_class_may_stand_in_the_lower_table_alone_and_be_a_number(tables):
    data = interval_tables(*tables("x,kind\n1,7\n2,3\n", "x\n1\n2\n"))
    assert (data.classes, data.labels.tolist()) == (("3", "7"), [1, 0])


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ("x\n1\n", UPPER, r"lower\.csv has no column 'kind'; its columns are x"),
        (LOWER, UPPER + "1,cat,1\n", r"lower\.csv has 3 rows, but .*upper\.csv has 4"),
        (LOWER.replace("dog", ""), UPPER, "has no class in row 1, column 'kind'"),
        (LOWER, UPPER.replace("dog", "cow"), r"Row 1 is of class 'dog' in .*lower\.csv, but 'cow' in .*upper\.csv"),
        (LOWER, UPPER.replace("height", "depth"), r"lower\.csv has a column 'height', but .*upper\.csv has not"),
        ("kind\ncat\n", "kind,z\ncat,1\n", r"upper\.csv has a column 'z', but .*lower\.csv has not"),
        (LOWER, UPPER.replace("0.75", "much"), r"upper\.csv: column 'width' does not hold numbers"),
        (LOWER.replace("0.5", ""), UPPER, r"lower\.csv: row 1, column 'width' is missing or infinite"),
        (LOWER, UPPER.replace("2.5", "inf"), r"upper\.csv: row 0, column 'height' is missing or infinite"),
        (LOWER, UPPER.replace("0.75", "0.25"), r"row 1, column 'width': the lower one is 0\.5, the upper one 0\.25"),
    ],
)
def test_tables_that_do_not_fit_are_named(tables, lower, upper, message):
    with pytest.raises(ValueError, match=message):
        interval_tables(*tables(lower, upper))
