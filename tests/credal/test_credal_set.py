"""CredalSet: construction, refusals, indexing, averages, envelopes, vertices, labels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor
from torch.utils import _pytree as pytree

import credal_cases
import reference_credal
from credal_cases import random_sets
from creinn import CreINN, Interval, models
from creinn import nn as inn
from creinn.classifier.credal import credal_set
from creinn.credal.credal_set import CredalSet
from creinn.credal.entropy import entropy_uncertainty, lower_entropy, upper_entropy
from creinn.credal.probability import interval_softmax, reachable


def assert_reachable(s, **tolerances):
    torch.testing.assert_close(reachable(s.lower, s.upper), (s.lower, s.upper), **tolerances)


def assert_bounds_are_attained(s, tolerance):
    """Compare the bounds of one set with linear programs."""
    low, high = s.lower.double().numpy(), s.upper.double().numpy()
    for k, unit in enumerate(np.eye(len(low))):
        assert reference_credal.minimum(unit, low, high) == pytest.approx(low[k], abs=tolerance)
        assert -reference_credal.minimum(-unit, low, high) == pytest.approx(high[k], abs=tolerance)


def by_hand():
    return CredalSet(tensor([0.0, 0.4, 0.2]), tensor([0.2, 0.6, 0.4]))


def test_set_by_hand():
    s = by_hand()
    assert s.intersection.tolist() == pytest.approx([2 / 15, 8 / 15, 1 / 3])  # alpha = .4 / .6
    assert torch.equal(s.probabilities, s.intersection)
    assert s.label.item() == 1
    assert s.width.tolist() == pytest.approx([0.2, 0.2, 0.2])
    assert s.shape == (3,)
    assert s.num_classes == 3
    assert [x.item() for x in (s.total, s.aleatoric, s.epistemic)] == pytest.approx(
        [1.52193, 0.97095, 0.55098], abs=1e-5
    )
    assert s.upper_entropy(return_distribution=True)[1].tolist() == pytest.approx([0.2, 0.4, 0.4])
    assert s.lower_entropy(return_distribution=True)[1].tolist() == pytest.approx([0, 0.6, 0.4])
    torch.testing.assert_close(s.upper_entropy(), s.total)
    torch.testing.assert_close(s.lower_entropy(), s.aleatoric)


def test_bounds_are_made_reachable():
    s = CredalSet(tensor([0.1, 0.2, 0.3]), tensor([0.4, 0.5, 0.9]))
    assert s.upper.tolist() == pytest.approx([0.4, 0.5, 0.7])


def test_measures_by_name():
    s = random_sets()
    expected = entropy_uncertainty(s.lower, s.upper)
    torch.testing.assert_close(s.uncertainty("entropy"), expected, rtol=0, atol=0)
    assert torch.equal(s.total, s.uncertainty("entropy").total)
    with pytest.raises(ValueError, match="5"):
        s.uncertainty("interval")
    with pytest.raises(ValueError, match="variance"):
        s.uncertainty("variance")


def test_two_classes_use_the_binary_measures():
    s = CredalSet.binary(tensor([0.1, 0.5]), tensor([0.6, 0.5]))
    torch.testing.assert_close(s.lower, tensor([[0.4, 0.1], [0.5, 0.5]]))
    torch.testing.assert_close(s.upper, tensor([[0.9, 0.6], [0.5, 0.5]]))
    torch.testing.assert_close(s.total, tensor([0.6, 0.5]))
    torch.testing.assert_close(s.aleatoric, tensor([0.1, 0.5]))
    torch.testing.assert_close(s.epistemic, tensor([0.5, 0.0]))
    assert s.uncertainty("entropy").total.tolist() == pytest.approx([1.0, 1.0])


def test_classes_by_rule():
    s = CredalSet(tensor([0.2, 0.2, 0.2]), tensor([0.6, 0.6, 0.31]))
    assert s.classes().tolist() == [True, True, True]
    assert s.classes("maximality").tolist() == [True, True, True]
    assert s.classes("e-admissibility").tolist() == [True, True, False]
    with pytest.raises(ValueError, match="all"):
        s.classes("all")


def test_uncertainties_are_computed_once(monkeypatch):
    s = random_sets()
    total = s.total
    monkeypatch.setattr("creinn.credal.entropy.entropy_uncertainty", None)  # not called again
    assert s.total is total
    assert s.aleatoric is not None


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_bounds_are_read_only(name):
    with pytest.raises(AttributeError, match=name):
        setattr(by_hand(), name, torch.ones(3))


@pytest.mark.parametrize(
    ("lower", "upper", "error", "message"),
    [
        (torch.zeros(2, 3), torch.ones(3), ValueError, r"\(2, 3\)"),
        (torch.zeros(5, 1), torch.ones(5, 1), ValueError, r"\(5, 1\)"),
        (tensor(0.1), tensor(0.2), ValueError, r"\(\)"),
        (torch.zeros(3), torch.ones(3).double(), TypeError, "float32"),
        (torch.zeros(3).int(), torch.ones(3).int(), TypeError, "int32"),
        (torch.zeros(3).half(), torch.ones(3), TypeError, "float16"),
        (torch.full((3,), 0.35).bfloat16(), torch.ones(3).bfloat16(), ValueError, r"1\.0\d+"),
        (torch.zeros(3), torch.ones(3, device="meta"), ValueError, "meta"),
        (tensor([[0.1, 0.2], [0.3, float("nan")]]), torch.ones(2, 2), ValueError, r"\(1, 1\)"),
        (torch.zeros(3), tensor([1.0, float("inf"), 1.0]), ValueError, "inf"),
        (tensor([-2.0, 0.1]), tensor([3.0, 0.5]), ValueError, "-2"),
        (tensor([0.1, 0.1]), tensor([0.5, 1.5]), ValueError, r"1\.5"),
        (tensor([0.1, 0.6]), tensor([0.9, 0.4]), ValueError, "lower <= upper"),
        (torch.full((4, 3), 0.4), torch.full((4, 3), 0.5), ValueError, r"1\.2"),
        (torch.full((3,), 0.1), torch.full((3,), 0.2), ValueError, r"0\.6"),
    ],
)  # fmt: skip
def test_invalid_bounds_raise(lower, upper, error, message):
    with pytest.raises(error, match=message):
        CredalSet(lower, upper)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_noise_is_repaired(dtype):
    q = tensor([0.2, 0.3, 0.5], dtype=dtype)
    noise = 1e-7
    for lower, upper in ((q + noise, q + noise), (q - noise, q - noise), (q + noise, q - noise)):
        s = CredalSet(lower, upper)
        assert (s.lower <= s.upper).all()
        assert s.lower.sum() <= 1 + 1e-7
        assert s.upper.sum() >= 1 - 1e-7
        torch.testing.assert_close(s.intersection, q, rtol=0, atol=1e-6)
    s = CredalSet(tensor([-noise, 0.0], dtype=dtype), tensor([0.5, 1 + noise], dtype=dtype))
    assert s.lower.min() >= 0
    assert s.upper.max() <= 1


def test_arrays_and_lists():
    assert CredalSet(np.array([0.2, 0.3]), np.array([0.7, 0.8])).lower.dtype == torch.float64
    assert CredalSet([0.2, 0.3], [0.7, 0.8]).shape == (2,)


def test_trusted_construction_does_not_read_data():
    lower, upper = torch.rand(2, 4, 3, device="meta")
    s = CredalSet._trusted(lower, upper)
    assert s.intersection.shape == (4, 3)
    assert s.label.shape == (4,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes", [3, 10, 1000])
def test_half_precision_is_stored_in_float32(dtype, classes):
    """Sets of points in half precision contain the points and are not empty."""
    torch.manual_seed(0)
    q = torch.randn(200, classes, dtype=torch.float64).softmax(-1).to(dtype)
    for lower, upper in ((q, q), (q * 0.9, (q * 1.1).clamp_max(1))):
        s = CredalSet(lower, upper)
        assert s.lower.dtype == s.total.dtype == s.intersection.dtype == torch.float32
        assert (s.lower.sum(-1) <= 1 + 1e-5).all()
        assert (s.upper.sum(-1) >= 1 - 1e-5).all()
        atol = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(s.intersection, q.float(), rtol=0, atol=atol)
    assert CredalSet.binary(q[:, 0], q[:, 0]).lower.dtype == torch.float32
    assert CredalSet._trusted(q, q).lower.dtype == torch.float32


@pytest.mark.parametrize("mode", ["paper", "sound", "scaled"])
@pytest.mark.parametrize("classes", [1, 4])
def test_half_precision_models_give_float32_sets(mode, classes):
    torch.manual_seed(0)
    model = CreINN(models.mlp(8, hidden=(16,), num_classes=classes, layers=inn), mode=mode).eval()
    x = torch.randn(50, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = [model(x)]
    found.append(model.to(torch.bfloat16)(x.bfloat16()))
    found.append(credal_set(Interval.point(x[:, :classes].bfloat16()), mode))
    for s in found:
        assert s.lower.dtype == s.upper.dtype == torch.float32
        again = CredalSet(s.lower, s.upper)  # accepted, by the rule of single precision
        torch.testing.assert_close(again.intersection, s.intersection)
    half = Interval(x[:, :classes].bfloat16() - 1, x[:, :classes].bfloat16() + 1)
    single = Interval(half.lower.float(), half.upper.float())
    expected = credal_set(single, mode).upper  # no digits are lost
    torch.testing.assert_close(credal_set(half, mode).upper, expected)


def test_averages_of_reachable_sets_are_reachable():
    sets = [random_sets(50, 4, seed) for seed in range(3)]
    mean = CredalSet.average(sets)
    torch.testing.assert_close(mean.lower, sum(s.lower for s in sets) / 3)
    torch.testing.assert_close(mean.upper, sum(s.upper for s in sets) / 3)
    assert_reachable(mean)
    assert_bounds_are_attained(mean[0], 1e-9)


def test_envelope_by_hand():
    one = CredalSet(tensor([0.1, 0.2, 0.3]), tensor([0.4, 0.5, 0.7]))
    two = CredalSet(tensor([0.0, 0.4, 0.2]), tensor([0.2, 0.6, 0.4]))
    both = CredalSet.envelope([one, two])
    assert both.lower.tolist() == pytest.approx([0.0, 0.2, 0.2])
    assert both.upper.tolist() == pytest.approx([0.4, 0.6, 0.7])
    assert both.width.sum() > CredalSet.average([one, two]).width.sum()


@credal_cases.seeded(60)
@given(st.data())
def test_envelope_is_smallest_reachable_set(data):
    first = data.draw(credal_cases.credal_bounds(5))
    classes = len(first[0])
    others = data.draw(
        st.lists(credal_cases.credal_bounds(5).filter(lambda b: len(b[0]) == classes), max_size=2)
    )
    sets = [CredalSet(*bounds) for bounds in (first, *others)]
    envelope = CredalSet.envelope(sets)
    for s in sets:
        assert (envelope.lower <= s.lower).all()
        assert (envelope.upper >= s.upper).all()
        assert envelope.contains(s.vertices()).all()
    corners = np.concatenate(
        [reference_credal.vertices(s.lower.numpy(), s.upper.numpy(), 1e-11) for s in sets]
    )
    # both bounds are attained by members of the sets
    np.testing.assert_allclose(envelope.lower, corners.min(0), rtol=0, atol=1e-10)
    np.testing.assert_allclose(envelope.upper, corners.max(0), rtol=0, atol=1e-10)
    assert_reachable(envelope, rtol=0, atol=1e-10)


def test_envelope_of_softmax_outputs_is_reachable_in_float32():
    bounds = [credal_cases.softmax_sets(50, 10, seed, 1.0) for seed in range(4)]
    envelope = CredalSet.envelope([CredalSet(a.float(), b.float()) for a, b in bounds])
    assert_reachable(envelope, rtol=0, atol=1e-6)
    assert_bounds_are_attained(envelope[0], 1e-6)


def test_envelope_without_check_has_gradients():
    on_meta = CredalSet._trusted(*torch.rand(2, 4, 3, device="meta"))
    assert CredalSet.envelope([on_meta, on_meta]).shape == (4, 3)
    lower = random_sets().lower.clone().requires_grad_()
    sets = [CredalSet._wrap(lower, random_sets().upper), random_sets(seed=1)]
    CredalSet.envelope(sets).lower.sum().backward()
    assert 0 < lower.grad.sum() < lower.numel()


def test_invalid_envelope_raises():
    with pytest.raises(ValueError, match="envelop"):
        CredalSet.envelope([])
    with pytest.raises(ValueError, match=r"\(20, 4\)"):
        CredalSet.envelope([random_sets(), random_sets(classes=4)])


def test_wrapper_is_envelope_of_samples():
    torch.manual_seed(0)
    samples = torch.randn(7, 20, 5, dtype=torch.float64).softmax(-1)
    wrapper = CredalSet.from_samples(samples)
    envelope = CredalSet.envelope([CredalSet(p, p) for p in samples])
    torch.testing.assert_close(wrapper.lower, samples.min(0).values)
    torch.testing.assert_close(wrapper.upper, envelope.upper)
    assert wrapper.contains(samples).all()
    one = CredalSet.from_samples(samples[:1])
    torch.testing.assert_close(one.intersection, samples[0])
    assert_reachable(wrapper)


def test_invalid_wrapper_samples_raise():
    with pytest.raises(ValueError, match=r"\(3,\)"):
        CredalSet.from_samples(torch.full((3,), 1 / 3))
    with pytest.raises(ValueError, match=r"\(0, 2, 3\)"):
        CredalSet.from_samples(torch.zeros(0, 2, 3))
    with pytest.raises(ValueError, match=r"\(1, 0\)"):
        CredalSet.from_samples(torch.tensor([[[0.5, 0.5]], [[0.75, 0.75]]]))


def test_invalid_average_and_concatenate_raise():
    with pytest.raises(ValueError, match="average"):
        CredalSet.average([])
    with pytest.raises(ValueError, match=r"\(20, 4\)"):
        CredalSet.average([random_sets(), random_sets(classes=4)])
    with pytest.raises(ValueError, match=r"\(20, 4\)"):
        CredalSet.concatenate([random_sets(), random_sets(classes=4)])
    with pytest.raises(ValueError, match="concatenate"):
        CredalSet.concatenate([by_hand(), by_hand()])


def test_concatenate_inverts_slicing():
    s = random_sets()
    again = CredalSet.concatenate([s[:7], s[7:8], s[8:]])
    assert torch.equal(again.lower, s.lower)
    assert torch.equal(again.upper, s.upper)


def test_indexing_selects_rows():
    s = random_sets(6)
    grid = CredalSet._wrap(s.lower.view(2, 3, 5), s.upper.view(2, 3, 5))
    assert s[2].shape == (5,)
    assert torch.equal(grid[1, 2].lower, s.lower[5])
    assert grid[..., 0].shape == (2, 5)
    assert grid[None].shape == (1, 2, 3, 5)
    assert s[s.label == s.label[0]].shape[1:] == (5,)
    assert len(s) == 6
    assert len(list(s)) == 6
    with pytest.raises(IndexError):
        s[0, 0]
    with pytest.raises(TypeError, match="num_classes"):
        len(s[0])


def test_to_and_detach():
    s = random_sets()
    assert s.to(torch.float32).lower.dtype == torch.float32
    assert s.to("meta").upper.device.type == "meta"
    with pytest.raises(TypeError, match="float16"):
        s.to(torch.float16)
    lower = s.lower.clone().requires_grad_()
    assert CredalSet(lower, s.upper).lower.requires_grad
    assert not CredalSet(lower, s.upper).detach().lower.requires_grad
    assert s.with_label(torch.zeros_like(s.label)).label.sum() == 0


def test_repr_is_short():
    assert repr(by_hand()) == "CredalSet([0, 0.2], [0.4, 0.6], [0.2, 0.4])"
    assert repr(random_sets(2)) == "CredalSet(shape=(2, 5), dtype=torch.float64, device=cpu)"


def test_vertices_by_hand():
    expected = tensor([[0.0, 0.6, 0.4], [0.2, 0.4, 0.4], [0.2, 0.6, 0.2]])
    torch.testing.assert_close(by_hand().vertices(), expected)
    vacuous = CredalSet(torch.zeros(4), torch.ones(4))
    assert torch.equal(vacuous.vertices(), torch.eye(4).flip(0))
    point = tensor([0.3, 0.7])
    torch.testing.assert_close(CredalSet(point, point).vertices(), point[None])


@credal_cases.seeded(100)
@given(credal_cases.credal_bounds())
def test_vertices_match_enumeration(bounds):
    s = CredalSet(*bounds)
    found = s.vertices().numpy()
    expected = reference_credal.vertices(s.lower.numpy(), s.upper.numpy())
    distance = np.abs(found[:, None] - expected[None]).max(-1)
    assert distance.min(0).max() < 1e-11  # every one is found
    assert distance.min(1).max() < 1e-11  # nothing else is
    apart = np.abs(found[:, None] - found[None]).max(-1) + np.eye(len(found))
    assert apart.min() > 0


@pytest.mark.parametrize("case", credal_cases.CASES, ids=lambda c: c.name)
def test_entropy_over_vertices_is_the_lower_entropy(case):
    s = CredalSet(*case.bounds())
    least = reference_credal.entropy(s.vertices().numpy()).min()
    assert least == pytest.approx(s.lower_entropy().item(), abs=1e-10)


def test_vertices_of_many_fixed_classes():
    q = torch.full((100,), 0.01, dtype=torch.float64)
    width = torch.zeros_like(q).index_fill(0, tensor([3, 50]), 0.005)
    assert CredalSet(q - width, q + width).vertices().shape == (2, 100)


def test_vertices_of_batches_and_many_classes_raise():
    with pytest.raises(ValueError, match=r"\(20,\)"):
        random_sets().vertices()
    with pytest.raises(ValueError, match="17"):
        random_sets(1, 17)[0].vertices()


def test_contains():
    s = by_hand()
    assert s.contains(s.intersection)
    assert s.contains(s.vertices()).all()
    outside = tensor([[0.3, 0.4, 0.3], [0.1, 0.5, 0.3], [0.0, 0.6, 0.41]])  # a bound, the sum, both
    assert s.contains(outside).tolist() == [False, False, False]
    assert s.contains(outside, tolerance=0.2).all()
    assert s.contains([0.2, 0.4, 0.4])
    batch = random_sets()
    assert batch.contains(batch.intersection).all()
    members = reference_credal.members(batch.lower[0], batch.upper[0], 50, seed=0)
    assert batch.contains(members[:, None])[:, 0].all()


def test_gradients_flow_through_construction_and_measures():
    lower, upper = (x.clone().requires_grad_() for x in credal_cases.boxes(5, 4, seed=3, share=1.0))
    s = CredalSet(lower, upper)
    (s.epistemic.sum() + s.intersection.square().sum()).backward()
    assert lower.grad.abs().sum() > 0
    assert upper.grad.abs().sum() > 0


def test_credal_sets_are_pytrees():
    s = random_sets()
    leaves, structure = pytree.tree_flatten(s)
    assert torch.equal(pytree.tree_unflatten(leaves, structure).upper, s.upper)
    mapped = torch.func.vmap(lambda a, b: CredalSet._trusted(a, b))(s.lower, s.upper)
    torch.testing.assert_close(mapped.lower, s.lower)


def test_entropies_match_functions():
    s = random_sets()
    assert torch.equal(s.upper_entropy(), upper_entropy(s.lower, s.upper))
    assert torch.equal(s.lower_entropy(), lower_entropy(s.lower, s.upper))


def test_label_of_almost_vacuous_set():
    """Bounds of logits (0, 0, 9, 0) ± 40: the intersection probabilities agree in float32, the lower ones do not."""
    center = torch.tensor([[0.0, 0.0, 9.0, 0.0]])
    lower, upper = interval_softmax(center - 40, center + 40)
    found = CredalSet(lower, upper)
    assert found.intersection.unique().numel() == 1
    assert found.label.tolist() == [2]


def test_given_label_is_preserved():
    bounds = random_sets(6)
    given = (bounds.label + 1) % 5
    s = CredalSet._wrap(bounds.lower, bounds.upper, given)
    assert s.label is given
    mapped = pytree.tree_map(torch.clone, s)
    for again in (s.detach(), s.to(torch.float32), mapped, s[...], s[None][0]):
        assert again.label.tolist() == given.tolist()
    assert s.to(torch.float32).label.dtype == torch.int64
    assert s.to("meta").label.device.type == "meta"
    assert s[2].label == given[2]
    assert s[given > 1].label.tolist() == given[given > 1].tolist()
    mixed = CredalSet.concatenate([s[:4], bounds[4:]])
    assert mixed.label.tolist() == [*given[:4].tolist(), *bounds.label[4:].tolist()]
    for combine in (CredalSet.average, CredalSet.envelope):
        assert combine([s, s]).label.tolist() == bounds.label.tolist()  # of its own bounds
