"""Folders and archives of images, alone or as pairs of bounds: pixels exact, strays skipped, damaged files named."""

import sys
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from creinn.data import LazyImages, image_folder
from creinn.data.decoding import DecodeStats, decode_all
from creinn.data.images import is_tree, read_images
from creinn.interval import Interval


def read_pair(*paths, **options):
    (pair,) = read_images(paths, **options)
    return pair


def picture(seed, mode="RGB", size=(6, 4)):
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "pets"
    for k, name in enumerate(["cat", "dog"]):
        (root / name).mkdir(parents=True)
        for i in range(3 - k):
            picture(10 * k + i).save(root / name / f"{i}.png")
    return root


def zipped(folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder))
    return path


def test_classes_are_sorted_folders_and_pixels_are_exact(folder):
    data = image_folder(folder, split="train")
    assert (data.name, data.split, data.classes, data.counts) == (
        "pets",
        "train",
        ("cat", "dog"),
        (3, 2),
    )
    assert data.inputs.shape == (5, 3, 4, 6)
    assert data.inputs.dtype == torch.uint8
    assert data.labels.tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_array_equal(data.inputs[4].permute(1, 2, 0), np.asarray(picture(11)))


def test_zip_equals_folder(folder, tmp_path):
    data, same = image_folder(folder), image_folder(zipped(folder, tmp_path / "pets.zip"))
    assert torch.equal(data.inputs, same.inputs)
    assert torch.equal(data.labels, same.labels)
    assert data.classes == same.classes
    with zipfile.ZipFile(
        tmp_path / "dotted.zip", "w"
    ) as archive:  # as in the files of some programs
        archive.writestr("./", b"")
        archive.write(folder / "cat" / "0.png", "./cat/0.png")
    assert image_folder(tmp_path / "dotted.zip").classes == ("cat",)


def test_stray_files_and_nested_folders(folder):
    for stray in [
        ".DS_Store",
        "cat/.DS_Store",
        "cat/._0.png",
        "__MACOSX/cat/._0.png",
        "cat/notes.txt",
        ".git/x.png",
    ]:
        (folder / stray).parent.mkdir(parents=True, exist_ok=True)
        (folder / stray).write_bytes(b"not an image")
    (folder / "dog" / "puppies").mkdir()
    picture(5).save(folder / "dog" / "puppies" / "a.BMP", "bmp")
    assert image_folder(folder).counts == (3, 3)


def test_grey_and_rgb_files(folder):
    picture(3, "L").save(folder / "cat" / "grey.png")
    colour, grey = image_folder(folder), image_folder(folder, channels=1)
    assert torch.equal(colour.inputs[3, 0], colour.inputs[3, 2])
    assert grey.inputs.shape == (6, 1, 4, 6)
    np.testing.assert_array_equal(grey.inputs[3, 0], np.asarray(picture(3, "L")))
    np.testing.assert_array_equal(grey.inputs[0, 0], np.asarray(picture(0).convert("L")))


def test_palette_and_transparency(tmp_path):
    (tmp_path / "a").mkdir()
    image = picture(0).convert("P")
    image.save(tmp_path / "a" / "0.png", transparency=bytes(range(256)))
    picture(0).convert("RGBA").save(tmp_path / "a" / "1.png")
    data = image_folder(tmp_path)
    colours, alpha = (
        np.asarray(image.convert("RGB"), float),
        np.asarray(image, float)[..., None] / 255,
    )
    on_white = alpha * colours + (1 - alpha) * 255
    np.testing.assert_allclose(data.inputs[0].permute(1, 2, 0), on_white, atol=1)
    np.testing.assert_array_equal(data.inputs[1].permute(1, 2, 0), np.asarray(picture(0)))


@pytest.mark.parametrize(
    ("mode", "colour"), [("RGBA", (0, 0, 0, 0)), ("LA", (0, 0)), ("RGB", (0, 0, 0)), ("L", 0)]
)
def test_transparent_pixels_are_white(tmp_path, mode, colour):
    image = Image.new(mode, (2, 1), colour)
    image.putpixel(
        (1, 0),
        (40,) * 3 if mode == "RGB" else 40 if mode == "L" else (40,) * (len(mode) - 1) + (255,),
    )
    image.save(tmp_path / "a.png", **({} if "A" in mode else {"transparency": colour}))
    stats = DecodeStats("here")
    pixels, _ = decode_all(["a.png"], lambda name: (tmp_path / name).read_bytes(), stats, None, 1)
    assert pixels.tolist() == [[[[255, 40]]]]
    assert stats.notes() == ["here: 1 image with transparency laid on white"]


def test_exif_orientation(folder):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    picture(7).transpose(Image.Transpose.ROTATE_90).save(folder / "dog" / "z.png", exif=exif)
    np.testing.assert_array_equal(
        image_folder(folder).inputs[5].permute(1, 2, 0), np.asarray(picture(7))
    )


def test_skip_unreadable_files(folder):
    (folder / "cat" / "1.png").write_bytes(b"no image at all")
    picture(8, size=(9, 17)).save(folder / "cat" / "2.png")
    files = ["cat/0.png", "cat/1.png", "cat/2.png", "cat/3.png"]

    def read(name):
        return (folder / name).read_bytes()

    stats = DecodeStats("here")
    pixels, kept = decode_all(files, read, stats, (4, 6), 3, strict=False)
    assert kept == ["cat/0.png", "cat/2.png"]
    assert pixels.shape == (2, 3, 4, 6)
    np.testing.assert_array_equal(pixels[0].transpose(1, 2, 0), np.asarray(picture(0)))
    assert stats.notes() == [
        "here: 1 image stretched to 6 x 4 pixels: 1 of 9 x 17",
        "here: 2 files (cat/1.png, cat/3.png) left out, being unreadable",
    ]
    assert "cat/1.png" in stats.unreadable["cat/1.png"]
    assert "No such file" in stats.unreadable["cat/3.png"]
    with pytest.raises(
        ValueError,
        match=r"cat/1\.png",
    ):
        decode_all(files, read, DecodeStats("here"), (4, 6), 3)


def test_size_resizes_images(folder):
    picture(7, size=(9, 17)).save(folder / "dog" / "large.png")
    data = image_folder(folder, size=5)
    assert data.inputs.shape == (6, 3, 5, 5)
    expected = np.asarray(picture(7, size=(9, 17)).resize((5, 5), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(data.inputs[5].permute(1, 2, 0), expected)


def test_given_classes(folder):
    data = image_folder(folder, classes=["dog", "horse", "cat"])
    assert data.counts == (2, 0, 3)
    assert data.labels.tolist() == [0, 0, 2, 2, 2]
    with pytest.raises(ValueError, match="'dog'"):
        image_folder(folder, classes=["cat", "horse"])


def test_mixed_sizes_raise(folder):
    picture(7, size=(9, 17)).save(folder / "dog" / "large.png")
    with pytest.raises(
        ValueError,
        match="9 x 17",
    ):
        image_folder(folder)


@pytest.mark.parametrize("suffix", ["png", "jpeg", "webp"])
def test_truncated_images_raise(folder, suffix, tmp_path):
    path = folder / "dog" / f"broken.{suffix}"
    picture(0, size=(60, 60)).save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(
        ValueError,
        match=rf"broken\.{suffix}",
    ):
        image_folder(folder, size=4)
    with pytest.raises(ValueError, match=rf"broken\.{suffix}"):
        image_folder(zipped(folder, tmp_path / "pets.zip"), size=4)


def test_damaged_archives_raise(folder, tmp_path):
    path = zipped(folder, tmp_path / "pets.zip")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"pets\.zip"):
        image_folder(path)
    at = whole.index(b"IDAT") + 30  # inside the pixels of the first image
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    with pytest.raises(ValueError, match="CRC-32"):
        image_folder(path)


def test_sixteen_bit_grey_is_scaled_by_65535(folder):
    values = np.array([[0, 257, 40_000, 65_535, 128, 129]] * 4, np.uint16)
    Image.fromarray(values).save(folder / "cat" / "deep.png")
    with pytest.warns(UserWarning, match="65535"):
        data = image_folder(folder, channels=1)
    assert data.inputs[3, 0, 0].tolist() == [0, 1, 156, 255, 0, 1]  # 40,000 / 257 = 155.6


@pytest.mark.parametrize(
    ("values", "expected", "note"),
    [([0, 0.25, 1, 1], [0, 64, 255, 255], r"\[0, 1\]"), ([-3, -3, 0, 9], [0, 0, 64, 255], "own")],
)
def test_float_tiff_is_scaled_by_its_range(tmp_path, values, expected, note):
    (tmp_path / "only").mkdir()
    Image.fromarray(np.array([values], np.float32)).save(tmp_path / "only" / "a.tif")
    with pytest.warns(UserWarning, match=note):
        data = image_folder(tmp_path, channels=1)
    assert data.inputs.flatten().tolist() == expected


def test_constant_float_image_is_black(tmp_path):
    (tmp_path / "only").mkdir()
    Image.fromarray(np.full((1, 2), 7, np.float32)).save(tmp_path / "only" / "a.tif")
    with pytest.warns(UserWarning, match="own"):
        assert image_folder(tmp_path, channels=1).inputs.flatten().tolist() == [0, 0]


def test_float_image_with_nan_raises(tmp_path):
    (tmp_path / "only").mkdir()
    Image.fromarray(np.array([[0, np.nan]], np.float32)).save(tmp_path / "only" / "a.tif")
    with pytest.raises(ValueError, match="finite"):
        image_folder(tmp_path)


def test_empty_class_folder_gives_a_note(folder, tmp_path):
    (folder / "cow").mkdir()
    for path in (folder, zipped(folder, tmp_path / "pets.zip")):
        with pytest.warns(UserWarning, match="cow"):
            data = image_folder(path)
        assert (data.classes, data.counts) == (("cat", "dog"), (3, 2))
        with pytest.warns(UserWarning, match="cow"):
            data = image_folder(path, classes=["cat", "cow", "dog"])
        assert data.counts == (3, 0, 2)


def test_invalid_folders_raise(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        image_folder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="one folder"):
        image_folder(tmp_path / "empty")
    folder.rename(tmp_path / "empty" / "train")
    with pytest.raises(ValueError, match="train"):
        image_folder(tmp_path / "empty")
    picture(0).save(tmp_path / "empty" / "train" / "lost.png")
    with pytest.raises(ValueError, match=r"lost\.png"):
        image_folder(tmp_path / "empty" / "train")


def test_invalid_arguments_raise(folder):
    with pytest.raises(ValueError, match="channels"):
        image_folder(folder, channels=2)
    with pytest.raises(ValueError, match="size"):
        image_folder(folder, size=0)
    with pytest.raises(ValueError, match="somewhere"):
        decode_all([], bytes, DecodeStats("somewhere"), None, 3)


def test_missing_pillow_raises(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r'pip install "creinn\[images\]"'):
        image_folder(folder)


def test_decompression_bomb_raises(folder, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)
    with pytest.raises(ValueError, match="bomb"):
        image_folder(folder)


def test_real_chest_samples(real_data):
    data = image_folder(
        real_data / "samples" / "chest_xray_original" / "chest_xray" / "train", size=32, channels=1
    )
    assert data.inputs.shape == (6, 1, 32, 32)
    assert data.counts == (3, 3)
    assert data.classes == ("NORMAL", "PNEUMONIA")


def test_zip_archives_of_images_and_tables_differ(folder, tmp_path):
    (folder / "readme.txt").write_text("about the pets")
    assert is_tree(folder)
    assert is_tree(folder / "cat" / "0.png")
    assert is_tree(zipped(folder, tmp_path / "pets.zip"))
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("t.csv", "a,b")
    assert not is_tree(tmp_path / "table.zip")


@pytest.fixture
def folders(tmp_path):
    rng = np.random.default_rng(0)
    for i, name in enumerate(["a/0.png", "a/1.png", "b/0.png"]):
        low = rng.integers(0, 200, (8, 6, 3), dtype=np.uint8)
        for side, pixels in (("low", low), ("high", low + np.uint8(20 * i))):
            (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / side / name)
    return tmp_path / "low", tmp_path / "high"


def test_bounds_are_matched_by_file_name(folders):
    x, files, _ = read_pair(*folders)
    assert isinstance(x, Interval)
    assert x.shape == (3, 3, 8, 6)
    assert files == ["a/0.png", "a/1.png", "b/0.png"]
    for i in range(3):
        torch.testing.assert_close(x.width[i], torch.full((3, 8, 6), 20 * i / 255))
    stored = np.array(Image.open(folders[0] / "b" / "0.png"))
    torch.testing.assert_close(x.lower[2], torch.from_numpy(stored).permute(2, 0, 1) / 255)


def test_resize_and_grey_preserve_order(folders):
    x, _, _ = read_pair(*folders, size=5, channels=1)
    assert x.shape == (3, 1, 5, 5)
    assert bool((x.lower <= x.upper).all())


def test_unmatched_file_raises(folders):
    low, high = folders
    (high / "a" / "1.png").rename(high / "a" / "2.png")
    with pytest.raises(
        ValueError,
        match=r"a/1\.png",
    ):
        read_pair(low, high)
    (low / "a" / "1.png").unlink()
    with pytest.raises(ValueError, match=r"a/2\.png"):
        read_pair(low, high)


def test_swapped_folders_raise(folders):
    with pytest.raises(ValueError, match=r"a/1\.png"):
        read_pair(*reversed(folders))


def test_bounds_scaled_per_file_raise(folders):
    for path, values in zip(folders, ([0, 1, 2], [1, 7, 9]), strict=True):
        Image.fromarray(np.array([values], np.float32)).save(path / "a" / "float.tif")
    with pytest.raises(ValueError, match=r"float\.tif .*own"):
        read_pair(*folders, size=4)
    lazy = LazyImages(folders[0], upper=folders[1], size=4, classes=["a"], files=["a/float.tif"])
    with pytest.raises(ValueError, match=r"float\.tif .*own"):
        lazy[0]


def test_unequal_sizes_of_bounds_raise(folders):
    for file in folders[1].rglob("*.png"):
        Image.new("RGB", (3, 2)).save(file)
    with pytest.raises(ValueError, match="Give a size"):
        read_pair(*folders)


def test_unreadable_bound_skips_the_pair(folders):
    low, high = folders
    (low / "a" / "0.png").write_bytes(b"x")
    (high / "b" / "0.png").write_bytes(b"x")
    x, files, (lower, upper) = read_pair(low, high, strict=False)
    assert files == ["a/1.png"]
    torch.testing.assert_close(x.width, torch.full((1, 3, 8, 6), 20 / 255))
    assert len(lower.unreadable) == len(upper.unreadable) == 1
    with pytest.raises(ValueError, match=r"a/0\.png"):
        read_pair(low, high)
    (low / "a" / "1.png").write_bytes(b"x")
    with pytest.raises(ValueError, match="no image can be read, 3 files in all"):
        read_pair(low, high, strict=False)


@pytest.mark.parametrize("size", [(40, 20), (20, 40)])
def test_crop_keeps_the_centre_and_its_proportions(tmp_path, size):
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[size[1] // 2 - 5 : size[1] // 2 + 5, size[0] // 2 - 5 : size[0] // 2 + 5] = 200
    Image.fromarray(pixels).save(tmp_path / "a.png")
    stats = DecodeStats("here")
    read = (tmp_path / "a.png").read_bytes
    found, _ = decode_all(["a.png"], lambda _: read(), stats, 8, 3, crop=0.5)
    assert found.shape == (1, 3, 8, 8)
    assert (found > 150).all()  # half of the shorter side is the bright square of 10 pixels
    assert stats.notes() == []
    stretched, _ = decode_all(["a.png"], lambda _: read(), DecodeStats("here"), 8, 3)
    assert (stretched < 50).any()


def test_crop_of_a_large_jpeg_is_close_to_that_of_all_pixels(tmp_path):
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    large = small.resize((1600, 1200), Image.Resampling.BICUBIC)
    large.save(tmp_path / "a.jpg", quality=95)
    large.save(tmp_path / "a.png")

    def read(name):
        return (tmp_path / name).read_bytes()

    found = [
        decode_all([name], read, DecodeStats("here"), 32, 3, crop=0.875)[0].astype(int)
        for name in ("a.jpg", "a.png")
    ]
    assert np.abs(found[0] - found[1]).mean() < 3
