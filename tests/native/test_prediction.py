"""Test the C++ computation of radii and credal sets."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from credal_cases import seeded
from creinn import CreINN, Interval, native
from creinn.classifier.credal import credal_set, fast_credal_set
from creinn.credal.probability import reachable
from creinn.distance.mahalanobis import Distance
from creinn.distance.radius import VACUOUS, DistanceRadius, NativeRadius, add_radius
from creinn.graph.compile import compile
from creinn.models import mlp
from creinn.native import kernel
from reference_credal import exact_softmax_intervals

pytestmark = pytest.mark.skipif(not native.available, reason=native.reason)
needs_vectors = pytest.mark.skipif(not native.is_vectorized, reason="this processor has no AVX2")


def fitted(sizes, rank=256, classes=3, rows=200, seed=0):
    """Return a fitted radius of layers with these numbers of features, and other rows."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    centers = [3 * torch.randn(classes, size, generator=generator) for size in sizes]
    train = [c[y] + torch.randn(rows, c.shape[1], generator=generator) for c in centers]
    radius = DistanceRadius(classes)
    radius._make_distances(len(sizes) + min(2, len(sizes)))
    units = [x / x.norm(dim=1, keepdim=True) for x in train[-2:]]
    for distance, x in zip(radius.distances, [*train, *units], strict=True):
        distance.rank = rank
        distance.fit(x, y)
    radius.fit_scores([x + 0.5 for x in train])
    radius.scale.fill_(0.01)
    new = [x[:5] * torch.tensor([[1.0], [1.1], [0.5], [3.0], [-40.0]]) for x in train]
    return radius, new


@pytest.mark.parametrize("level", range(kernel.best_level + 1))
@pytest.mark.parametrize(
    ("sizes", "rank"),
    [((4,), 256), ((1, 2), 256), ((16, 33, 20), 256), ((40, 17), 9), ((130,), 64), ((7, 8, 50), 1)],
)
@torch.no_grad()
def test_radius(sizes, rank, level, monkeypatch):
    monkeypatch.setattr(kernel, "best_level", level)
    monkeypatch.setattr(native, "is_vectorized", True)
    radius, features = fitted(sizes, rank)
    found = NativeRadius(radius)(features)
    expected = radius.double()([x.double() for x in features])
    assert expected.max() > 1e3 * expected.min()
    torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=1e-6)


def test_radius_by_hand():
    """The means are 0 and 8, the variance is 1; see :class:`Distance`."""
    distance = Distance(2)
    distance.fit(torch.tensor([[-1.0], [1.0], [7.0], [9.0]]), torch.tensor([0, 0, 1, 1]))
    unit = Distance(2)
    unit.fit(torch.tensor([[-1.0], [-1.0], [1.0], [1.0]]), torch.tensor([0, 0, 1, 1]))
    radius = DistanceRadius(2)
    radius.distances.extend([distance, unit])
    radius.medians, radius.spreads = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([2.0, 1.0, 1.0])
    radius.sums[:] = torch.tensor([[0.0, 1e30], [0.0, 0.7], [0.0, 1.0]])
    radius.scale.fill_(2.0)
    found = native.radius(*arguments_of(NativeRadius(radius)), [torch.tensor([[11.0], [8.0]])])
    # squared distances 9 and 0; the scores are (9 - 1) / 2 = 4 and 0
    expected = 2 * torch.tensor([4.0, 0.0]).exp().add(1).log() ** 4
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def arguments_of(radius):
    return radius._sizes, radius.values


@torch.no_grad()
def test_radius_is_largest_after_an_overflow():
    radius, features = fitted((20, 20))
    sizes, values = arguments_of(NativeRadius(radius))
    for value in (1e25, torch.inf, -torch.inf, torch.nan):
        rows = [x.clone() for x in features]
        rows[0][2, 3] = value
        found = native.radius(sizes, values, rows)
        assert found[2] == torch.finfo(torch.float32).max
        assert found[:2].max() < 1e3


@torch.no_grad()
def test_another_default_device():
    radius, features = fitted((20, 20))
    with torch.device("meta"):
        found = NativeRadius(radius)
    torch.testing.assert_close(found(features), radius(features), rtol=2e-3, atol=1e-6)


@needs_vectors
@torch.no_grad()
def test_conditions_for_radius(monkeypatch):
    radius, features = fitted((20, 20))
    fast, calls, by_library = NativeRadius(radius), [], native.radius

    def counted(*arguments):
        calls.append(1)
        return by_library(*arguments)

    monkeypatch.setattr(native, "radius", counted)
    fast(features)
    fast([x.unsqueeze(2).expand(-1, -1, 2)[..., 0] for x in features])  # not contiguous
    assert len(calls) == 2
    fast([Interval(x, x + 0.1) for x in features])
    fast([x.repeat(10_000, 1) for x in features])
    for others in ([x[:, 1:] for x in features], [features[0], features[1][:2]], features[:1]):
        with pytest.raises((RuntimeError, ValueError)):  # torch finds the error
            fast(others)
    fast.double()([x.double() for x in features])
    assert len(calls) == 2


@st.composite
def interval_logits(draw):
    classes, scale = draw(st.integers(2, 7)), draw(st.sampled_from([0.125, 1.0, 10.0, 300.0, 1e4]))
    numbers = st.floats(-scale, scale, width=32)
    lower = draw(st.lists(numbers, min_size=classes, max_size=classes))
    widths = st.sampled_from([0.0, 0.0, 0.5, 2.0 * scale])
    return lower, [a + draw(widths) for a in lower]


@pytest.mark.parametrize("mode", ["paper", "sound"])
@given(logits=interval_logits())
@seeded()
def test_credal_set(mode, logits):
    lower, upper = (torch.tensor([row]) for row in logits)
    expected = exact_softmax_intervals(lower[0].tolist(), upper[0].tolist(), mode)
    expected = reachable(*(torch.tensor([row]).double() for row in expected), check=False)
    found = native.credal_set(lower, upper, None, mode, VACUOUS)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-6, atol=5e-7)
    assert bool((found[0] <= found[1]).all())


def test_credal_set_by_hand():
    """See :func:`creinn.credal.probability.interval_softmax`."""
    lower, upper = torch.tensor([[0.0, -1.0, 1.0]]), torch.tensor([[1.0, 0.0, 3.0]])
    low, high = native.credal_set(lower, upper, None, "paper", VACUOUS)
    torch.testing.assert_close(low, torch.tensor([[0.1112, 0.0391, 0.6467]]), rtol=0, atol=1e-4)
    torch.testing.assert_close(high, torch.tensor([[0.2537, 0.0996, 0.8497]]), rtol=0, atol=1e-4)


@needs_vectors
@pytest.mark.parametrize("mode", ["paper", "sound", "scaled"])
@pytest.mark.parametrize("is_point", [True, False])
@pytest.mark.parametrize("has_radius", [True, False])
def test_fast_credal_set(mode, is_point, has_radius, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    lower = 4 * torch.randn(9, 5, generator=generator)
    logits = Interval.point(lower) if is_point else Interval(lower, lower + lower.abs() / 8)
    radius = 10 ** torch.linspace(-9, 9, 9) if has_radius else None
    found, expected = (form(logits, mode, radius) for form in (fast_credal_set, credal_set))
    torch.testing.assert_close(found._bounds, expected._bounds, rtol=1e-4, atol=1e-6)
    assert torch.equal(found.label, expected.label)
    monkeypatch.setattr(native, "credal_set", None)
    with pytest.raises(TypeError):
        fast_credal_set(logits, mode, radius)
    for other in (logits.to(torch.float64), logits[:, :1], logits.map_monotone(wide)):
        fast_credal_set(other, mode)
    with pytest.raises(RuntimeError):  # torch finds the error
        fast_credal_set(logits, mode, torch.ones(4))


def wide(bound):
    return bound.repeat(1, 200)


@pytest.mark.parametrize("mode", ["paper", "sound"])
def test_vacuous_credal_sets(mode):
    lower = torch.tensor([[0.0, 1.0], [torch.nan, 0.0], [-torch.inf, 0.0], [3e38, -3e38]])
    low, high = native.credal_set(lower, lower, torch.full((4,), torch.inf), mode, VACUOUS)
    assert low.max() < 1e-6
    assert high.min() > 1 - 1e-6


def test_radius_is_limited_as_in_torch():
    lower = torch.tensor([[0.0, 3.0, -1.0]])
    for size in (0.0, 0.5, 20.0, 24.5, 1e9):
        radius = torch.tensor([size])
        found = native.credal_set(lower, lower, radius, "sound", VACUOUS)
        expected = credal_set(add_radius(Interval.point(lower.double()), radius), "sound")
        torch.testing.assert_close(found[0].double(), expected.lower, rtol=1e-4, atol=0)


@needs_vectors
@pytest.mark.filterwarnings("ignore:.*jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@torch.no_grad()
def test_compiled_model_uses_the_library(monkeypatch):
    torch.manual_seed(0)
    x, y = torch.randn(90, 4), torch.arange(90) % 3
    model = CreINN(mlp(4, 3, layers=torch.nn), distance=0.1)
    model.train()(x)
    model.fit_distance(x, y)
    expected = model(x[:4])
    compiled = compile(model)
    torch.testing.assert_close(compiled(x[:4])._bounds, expected._bounds, rtol=1e-3, atol=1e-6)
    traced = torch.jit.trace(lambda x: compiled(x).upper, x[:4], check_trace=False)
    torch.testing.assert_close(traced(x[4:8]), compiled(x[4:8]).upper, rtol=1e-3, atol=1e-6)
    monkeypatch.setattr(native, "radius", None)
    with pytest.raises(TypeError):
        compiled(x[:4])
    by_torch = compile(model, native=False)(x[:4])
    torch.testing.assert_close(by_torch._bounds, expected._bounds, rtol=1e-3, atol=1e-6)


AT_THE_END = """
import ctypes, mmap
import torch
from creinn import native

page, libc = mmap.PAGESIZE, ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
memories = []

def at_the_end(tensor):
    memory = mmap.mmap(-1, 2 * page)
    memories.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(start + page, page, 0) == 0
    offset = page - 4 * tensor.numel()
    found = torch.frombuffer(memory, dtype=torch.float32, count=tensor.numel(), offset=offset)
    return found.copy_(tensor.flatten()).view(tensor.shape)

x = at_the_end(torch.randn(3, 3))
found = native.credal_set(x, x, at_the_end(torch.zeros(3)), "sound", 20.0)
torch.testing.assert_close(found[0], x.softmax(1))
distance = torch.rand(16 + 8 * 16 + 16 + 2 * 16 + 8 * 16 + 1 + 2)
values = at_the_end(torch.cat((distance, distance, torch.rand(3 + 3 + 6 + 4))))
assert native.radius(torch.tensor([1, 2, 2, 3, 3, 1, 3, 3, 1]), values, [x]).isfinite().all()
print("nothing else was read")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_no_out_of_bounds_reads():
    run = [sys.executable, "-c", AT_THE_END]
    found = subprocess.run(run, capture_output=True, text=True, check=False)
    assert found.stdout == "nothing else was read\n", found.stderr
