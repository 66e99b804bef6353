"""Test the C++ implementation of the product. The results are compared with the results in float64."""

import subprocess
import sys

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from creinn import native
from creinn import nn as inn
from creinn.interval import Interval
from creinn.native.kernel import LEVELS, LIBRARY, best_level

pytestmark = pytest.mark.skipif(not native.available, reason=native.reason)

BEST = LIBRARY.creinn_best_level() if LIBRARY else -1


def level_or_skip(level):
    return pytest.param(
        level,
        marks=pytest.mark.skipif(level > BEST, reason=f"this processor has no {LEVELS[level]}"),
    )


every_level = pytest.mark.parametrize(
    "level", [level_or_skip(level) for level in range(len(LEVELS))], ids=LEVELS
)


def drawn(shape, outputs, window, kinds="mixed"):
    """Return random inputs and weights. Some of them are zero."""
    images, channels, *image = shape
    x = torch.rand(images, 2, channels, *image).sort(1).values * (
        torch.rand(images, 1, channels, *image) < 0.8
    )
    center = torch.randn(outputs, channels // window.groups, *window.kernel)
    radius = torch.rand_like(center) * (torch.rand_like(center) < 0.6)
    if kinds == "points":
        radius.zero_()
    center[torch.rand_like(center) < 0.1] = 0.0
    lower, upper = center - radius, center + radius
    lower[(lower == 0) & (torch.rand_like(lower) < 0.5)] = -0.0
    return x, lower, upper


def expected(x, lower, upper, window, norm, residual, magnitude, relu):
    """Return the result of the interval layer in float64."""
    with torch.device("meta"):
        layer = inn.Conv2d(
            *(
                x.shape[2],
                len(lower),
                window.kernel,
                window.stride,
                window.padding,
                window.dilation,
                window.groups,
            ),
            bias=False,
        )
    layer.weight = torch.nn.Parameter((lower.double() + upper.double()) / 2)
    layer.weight_radius = torch.nn.Parameter((upper.double() - lower.double()) / 2)
    y = layer(Interval(*x.double().unbind(1)))
    by, plus, width_by, width_plus = norm.double().T[:, None, :, None, None]
    center = by * (y.lower + y.upper) + plus
    width = width_by * (y.upper - y.lower) + width_plus
    width = width.abs() if magnitude else width.clamp_min(0)
    bounds = torch.stack((center - width, center + width), 1) + (
        0 if residual is None else residual.double()
    )
    return bounds.clamp_min(0) if relu else bounds


def assert_right(x, lower, upper, window, level, magnitude=False, relu=False, with_residual=False):
    outputs = len(lower)
    norm = torch.randn(outputs, 4)
    rows, columns = window.size(tuple(x.shape[3:]))
    residual = torch.randn(len(x), 2, outputs, rows, columns) if with_residual else None
    packed = native.pack(lower, upper, window.groups)
    y = native.product(x, packed, norm, window, residual, magnitude, relu, level)
    wanted = expected(x, lower, upper, window, norm, residual, magnitude, relu)
    assert y.shape == wanted.shape
    torch.testing.assert_close(y.double(), wanted, rtol=1e-5, atol=1e-4)


sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))
few = st.tuples(st.integers(1, 3), st.integers(1, 3))


@torch.no_grad()
@settings(max_examples=100)
@given(
    st.data(),
    st.integers(1, 3),  # images
    st.integers(1, 3),  # groups
    st.integers(1, 4),  # channels of a group
    st.integers(1, 9),  # outputs of a group
    sizes,
    st.sampled_from(["mixed", "points"]),
)
def test_convolutions(data, images, groups, channels, outputs, image, kinds):
    kernel, stride, dilation = (data.draw(few) for _ in range(3))
    padding = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    window = native.Window(kernel, stride, padding, dilation, groups)
    assume(min(window.size(image)) > 0)
    torch.manual_seed(data.draw(st.integers(0, 99)))
    x, lower, upper = drawn((images, groups * channels, *image), groups * outputs, window, kinds)
    magnitude, relu, residual = (data.draw(st.booleans()) for _ in range(3))
    assert_right(
        x, lower, upper, window, data.draw(st.integers(0, BEST)), magnitude, relu, residual
    )


LARGE = {
    "many steps, 3 x 3": ((2, 30, 11, 13), 20, native.Window((3, 3), padding=(1, 1))),
    "many tiles, 1 x 1": ((3, 5, 20, 19), 7, native.Window()),
    "stride 2": ((2, 12, 23, 25), 9, native.Window((3, 3), (2, 2), (1, 1))),
    "stride 2, small images": ((9, 7, 8, 8), 6, native.Window((3, 3), (2, 2), (1, 1))),
    "stride 3": ((2, 5, 20, 31), 4, native.Window((3, 3), (3, 3), (1, 1))),
    "vectors of several images": ((5, 9, 7, 7), 6, native.Window((3, 3), padding=(1, 1))),
    "vectors of many images": ((30, 9, 2, 3), 6, native.Window((3, 3), padding=(1, 1))),
    "signs that fill a word": ((2, 64, 9, 9), 7, native.Window()),
    "more outputs than a task has": ((1, 8, 7, 8), 600, native.Window()),
    "linear": ((65, 150, 1, 1), 33, native.Window()),
    "one row": ((1, 300, 1, 1), 5, native.Window()),
    "depthwise": ((2, 24, 15, 9), 24, native.Window((3, 3), padding=(1, 1), groups=24)),
}


@every_level
@pytest.mark.parametrize("name", LARGE)
@torch.no_grad()
def test_large_convolutions(name, level):
    torch.manual_seed(0)
    shape, outputs, window = LARGE[name]
    assert_right(*drawn(shape, outputs, window), window, level, relu=True, with_residual=True)


@every_level
@torch.no_grad()
def test_threads(level):
    torch.manual_seed(0)
    window = native.Window((3, 3), padding=(1, 1))
    case = drawn((3, 6, 7, 9), 40, window)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert_right(*case, window, level)
    finally:
        torch.set_num_threads(threads)


@every_level
def test_points_have_zero_width(level):
    torch.manual_seed(0)
    window = native.Window((3, 3), padding=(1, 1))
    x, weight = torch.rand(2, 1, 40, 5, 5).expand(2, 2, 40, 5, 5), torch.randn(6, 40, 3, 3)
    norm = torch.tensor([0.5, 0.0, 0.5, 0.0]).repeat(6, 1)
    lower, upper = native.product(x, native.pack(weight, weight), norm, window, level=level).unbind(
        1
    )
    assert (upper - lower).abs().max() == 0


@every_level
def test_overflow(level):
    x = torch.full((1, 2, 1, 3, 3), 1e30)
    weight = torch.tensor([[-1e30], [1e30], [torch.nan]])
    norm = torch.tensor([0.5, 0.0, 0.5, 0.0]).repeat(3, 1)
    y = native.product(
        x, native.pack(weight, weight), norm, native.Window(), relu=True, level=level
    )
    assert not bool(torch.isfinite(y).any())


def test_bounds_by_hand():
    # [1, 2] * [0.5, 1.5] + [0, 3] * [-1.5, -0.5] = [0.5 - 4.5, 3 - 0], times 2, and its ReLU
    x = torch.tensor([1.0, 0.0, 2.0, 3.0]).view(1, 2, 2, 1, 1)
    packed = native.pack(torch.tensor([[0.5, -1.5]]), torch.tensor([[1.5, -0.5]]))
    y = native.product(x, packed, torch.tensor([[1.0, 0.0, 1.0, 0.0]]), native.Window())
    assert y.flatten().tolist() == [-8.0, 6.0]
    y = native.product(x, packed, torch.tensor([[1.0, 0.0, 1.0, 0.0]]), native.Window(), relu=True)
    assert y.flatten().abs().tolist() == [0.0, 6.0]


@pytest.mark.parametrize(
    ("shape", "groups"), [((4, 3), 1), ((6, 50, 3, 3), 2), ((5, 1, 2, 3), 5), ((3, 71, 1), 1)]
)
def test_unpack(shape, groups):
    lower, upper = torch.randn(shape), torch.randn(shape)
    found = native.unpack(native.pack(lower, upper, groups), lower.shape, groups)
    torch.testing.assert_close(found, (lower, upper), rtol=0, atol=0)


def test_float64_weights_raise():
    with pytest.raises(ValueError, match="float64"):
        native.pack(torch.ones(2, 3).double(), torch.ones(2, 3))


def test_default_level_is_highest_available():
    torch.manual_seed(0)
    x, weight = torch.rand(2, 2, 8, 5, 5), torch.randn(6, 8, 3, 3)
    given = x, native.pack(weight - 0.1, weight + 0.1), torch.ones(6, 4), native.Window((3, 3))
    assert best_level == BEST
    assert native.is_vectorized == (BEST > 0)
    assert torch.equal(native.product(*given), native.product(*given, level=BEST))  # the same code


@pytest.mark.skipif(len(LEVELS) - 1 == BEST, reason="this processor has all levels")
def test_unavailable_level_raises():
    x, w = torch.ones(1, 2, 1, 1, 1), torch.ones(1, 1)
    with pytest.raises(RuntimeError, match="AVX-512"):
        native.product(
            x, native.pack(w, w), torch.ones(1, 4), native.Window(), level=len(LEVELS) - 1
        )


AT_THE_EDGE = """
import ctypes, mmap, sys
import torch
from creinn import native

level, at_end = int(sys.argv[1]), sys.argv[2] == "end"
page, libc = mmap.PAGESIZE, ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
memory = mmap.mmap(-1, 4 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for closed in (start, start + 3 * page):
    assert libc.mprotect(closed, page, 0) == 0
for stride in (1, 2):
    shape, window = (1, 2, 3, 9, 9), native.Window((3, 3), (stride, stride), (1, 1))
    count = torch.Size(shape).numel()
    offset = 3 * page - 4 * count if at_end else page
    x = torch.frombuffer(memory, dtype=torch.float32, count=count, offset=offset).view(shape)
    x.copy_(torch.rand(shape).sort(1).values)
    weight = torch.randn(4, 3, 3, 3)
    given = native.pack(weight - 0.1, weight + 0.1), torch.ones(4, 4), window
    found, expected = (native.product(of, *given, level=level) for of in (x, x.clone()))
    torch.testing.assert_close(found, expected)
print("nothing else was read")
"""


@every_level
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
@pytest.mark.parametrize("edge", ["start", "end"])
def test_no_out_of_bounds_reads(level, edge):
    run = [sys.executable, "-c", AT_THE_EDGE, str(level), edge]
    found = subprocess.run(run, capture_output=True, text=True, check=False)
    assert found.stdout == "nothing else was read\n", found.stderr
