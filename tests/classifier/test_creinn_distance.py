"""CreINN with a distance, from fit to export: sets that grow, labels that stay, ensembles, saved and exported forms."""

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call

import creinn
import reference
from creinn import CreINN, Ensemble, Interval, TrainConfig, fit, load, models
from creinn import nn as inn
from creinn.classifier.credal import credal_set
from creinn.classifier.network import outputs_and_logits
from creinn.distance.class_statistics import Sample
from creinn.distance.radius import VACUOUS, add_radius
from distance_cases import blobs, ordinary


@pytest.mark.parametrize("mode", ["paper", "sound"])
@pytest.mark.parametrize("network", ["perceptron", "pooled", "one logit"])
@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 1e20), (torch.float32, 1e35), (torch.float64, 1e160)]
)
def test_overflowing_features_give_vacuous_sets(
    network: str, mode: str, dtype: torch.dtype, size: float
) -> None:
    torch.manual_seed(0)
    x, y = blobs(classes=2 if network == "one logit" else 3)
    if network == "pooled":
        x = x.view(-1, 1, 2, 2)
        layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 2), torch.nn.Flatten(), torch.nn.Linear(4, 3)
        )
        model = CreINN(layers, mode=mode, distance=0.5, feature_layers=("0",))
    else:
        head = torch.nn.Linear(8, 1 if network == "one logit" else 3)
        layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LeakyReLU(), head)
        model = CreINN(layers, mode=mode, distance=0.5)
    model = model.to(dtype).eval().fit_distance(x.to(dtype), y)
    found = model.predict(size * x.to(dtype))
    assert found.lower.max() < 1e-6
    assert found.upper.min() > 1 - 1e-6
    assert (
        found.label.tolist()
        == credal_set(model._scaled_logits(model.network(size * x.to(dtype))), mode).label.tolist()
    )
    model.distance_radius.scale.zero_()
    assert bool((model.predict(size * x.to(dtype)).width == 0).all())  # no distance, no NaN


@pytest.mark.parametrize(
    "network", ["ordinary", "convolutions", "hooked", "interval", "converted", "sound", "scaled"]
)
def test_sets_grow_with_the_distance(network: str) -> None:
    torch.manual_seed(0)
    x, y = blobs()
    mode = network if network in ("sound", "scaled") else "paper"
    if network == "convolutions":
        built = models.resnet8(3, in_channels=1, width=4, layers=torch.nn)
        x = x.view(-1, 1, 2, 2).repeat(1, 1, 3, 3)
    elif network == "hooked":
        built = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    elif network == "ordinary":
        built = models.mlp(4, 3, hidden=(8,), layers=torch.nn)
    elif network == "converted":
        built = creinn.convert(models.mlp(4, 3, hidden=(8,), layers=torch.nn))
    else:
        built = models.mlp(4, 3, hidden=(8,), layers=inn)
        inn.scale_radii_(built, 1e-3)
    model = CreINN(built, mode=mode, distance=1.0)
    model.train()(x)  # moves the running statistics
    before = credal_set(model.eval()._scaled_logits(model.network(x)), mode)
    model.fit_distance(x, y)
    near, far = model.predict(x), model.predict(50 * x)
    outputs, _ = outputs_and_logits(model.network, x, model.feature_layers)
    assert len(outputs) == (4 if network == "convolutions" else 1)
    excess = model.distance_radius.excess(model._features_and_logits(x)[0])
    assert excess.median() < 1  # log(2) ** 4 = 0.23 at the median of new data
    typical = excess < 0.1
    torch.testing.assert_close(
        near.lower[typical], before.lower[typical], atol=0.05, rtol=0
    )  # hardly changes
    torch.testing.assert_close(near.upper[typical], before.upper[typical], atol=0.05, rtol=0)
    assert bool((near.width.mean(1) >= before.width.mean(1) - 1e-6).all())
    assert far.epistemic.median() > 1.5  # of log2(3) = 1.585: nothing is known
    assert near.label.tolist() == before.label.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["paper", "sound"])
@pytest.mark.parametrize("classes", [1, 2, 3, 10, 100])
def test_label_is_unchanged_and_always_in_set(classes: int, mode: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(classes)
    scores = torch.randn(2000, classes, generator=generator) * 10 ** (
        4 * torch.rand(2000, 1, generator=generator) - 2
    )
    scores[:200] = scores[:200].round()  # ties
    radius = 10 ** (8 * torch.rand(2000, generator=generator) - 4)
    radius[::10], radius[1::10] = 0, torch.inf
    scores, radius = scores.to(dtype), radius.to(dtype)
    widths = torch.rand(2000, classes, generator=generator).to(dtype)
    for logits in (Interval.point(scores), Interval(scores - widths, scores + widths)):
        wide, narrow = credal_set(logits, mode, radius), credal_set(logits, mode)
        assert torch.equal(wide.label, narrow.label)
        for rule in ("maximality", "e-admissibility"):
            assert bool(wide.classes(rule).gather(1, wide.label[:, None]).all())
        best = wide.intersection.amax(1)
        chosen = wide.intersection.gather(1, wide.label[:, None])[:, 0]
        assert not logits.is_point or bool((chosen >= best - 100 * torch.finfo(dtype).eps).all())
    both = torch.cat((-scores, scores), 1) if classes == 1 else scores
    assert torch.equal(credal_set(Interval.point(scores), mode, radius).label, both.argmax(1))


def test_labels_do_not_depend_on_batch_size() -> None:
    x, y = blobs()
    model = ordinary(distance=1.0).eval().fit_distance(x, y)
    far = torch.cat([x, 10 * x, 1000 * x])
    assert (
        model.predict(far, batch_size=7).label.tolist()
        == model.norm(model.network(far)).argmax(1).tolist()
    )
    ensemble = Ensemble([model, model])
    combined = ensemble.predict(x)
    assert (
        combined.label.tolist() == creinn.CredalSet(combined.lower, combined.upper).label.tolist()
    )


def test_radius_after_norm_by_hand() -> None:
    x, y = blobs()
    model = ordinary(distance=0.01, logit_norm=True).eval()
    torch.nn.init.constant_(model.norm.weight, 3.0)
    model.fit_distance(x, y)
    far = 3 * x[:5]
    features = model.network.features(far)
    radius = 0.01 * model.distance_radius.excess((features,)).detach()
    logits = model.norm(model.network.head(features))
    span = (logits.amax(1) - logits.amin(1) + VACUOUS).detach()
    radius = radius.minimum(span)[:, None]
    expected = credal_set(Interval((logits - radius).detach(), (logits + radius).detach()), "paper")
    torch.testing.assert_close(model.predict(far).lower, expected.lower)
    torch.testing.assert_close(model.predict(far).upper, expected.upper)


@pytest.mark.parametrize("width", [0.0, 0.2])
def test_sound_set_contains_sets_of_all_members(width: float) -> None:
    torch.manual_seed(0)
    x, y = blobs()
    network = models.mlp(4, 3, hidden=(8,), layers=inn)
    inn.scale_radii_(network, 0.02)
    model = CreINN(network, mode="sound", distance=0.003).double().eval()
    model.fit_distance(x, y)
    data = Interval(2 * x[:40].double(), 2 * x[:40].double() + width)
    outer = model(data)
    assert outer.width.mean() < 0.9  # not for free
    twin = models.mlp(4, 3, hidden=(8,), layers=torch.nn).double().eval()
    generator = torch.Generator().manual_seed(1)
    for index, inputs in enumerate(reference.members(data, generator, 30)):
        state = reference.member_parameters(model.network, generator, corner=bool(index % 2))
        state = {**dict(model.network.named_buffers()), **state}
        features = functional_call(
            _Features(twin), {f"network.{k}": v for k, v in state.items()}, (inputs,)
        )
        logits = functional_call(twin, state, (inputs,))
        normalised = torch.nn.functional.batch_norm(
            logits,
            model.norm.running_mean,
            model.norm.running_var,
            model.norm.weight,
            model.norm.bias,
            eps=1e-5,
        ).detach()
        radius = model.distance_radius((features.detach(),))
        inner = credal_set(add_radius(Interval.point(normalised), radius), "sound")
        assert bool((outer.lower <= inner.lower + 1e-9).all())
        assert bool((outer.upper >= inner.upper - 1e-9).all())


class _Features(torch.nn.Module):
    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network.features(x)


def test_training_matches_ordinary_network() -> None:
    x, y = blobs()
    model = ordinary(loss="intersection")
    model.fit_distance(x, y)  # not used in training mode
    twin = torch.nn.Sequential(copy.deepcopy(model.network), copy.deepcopy(model.norm)).train()
    with pytest.warns(UserWarning, match=r"eval\(\)"):
        prediction = model.train()(x)
    assert prediction.width.max() == 0
    weight = torch.tensor([1.0, 2.0, 3.0])
    loss, expected = (
        model.loss(prediction, y, weight),
        torch.nn.functional.cross_entropy(twin(x), y, weight),
    )
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for name, parameter in model.network.named_parameters():
        torch.testing.assert_close(
            parameter.grad, twin[0].get_parameter(name).grad, atol=1e-6, rtol=1e-4
        )


def test_single_logit() -> None:
    torch.manual_seed(0)
    x, y = blobs(classes=2)
    x = x + 3 * y.unsqueeze(1)
    model = CreINN(models.mlp(4, 1, hidden=(8,), layers=torch.nn), distance=True)
    loss = model.loss(model(x), y)
    torch.testing.assert_close(
        loss,
        torch.nn.functional.binary_cross_entropy_with_logits(
            model.norm(model.network(x))[:, 0], y.float()
        ),
    )
    history = fit(
        model,
        (x, y),
        None,
        TrainConfig(epochs=20, batch_size=50, learning_rate=0.01, progress=False),
    )
    assert history.rows[-1]["accuracy"] > 0.9
    assert model.num_classes == 2
    near, far = model.predict(x), model.predict(100 * x)
    assert (near.label == y).float().mean() > 0.9
    assert near.epistemic.median() < 0.05
    assert far.epistemic.median() > 0.95


@pytest.mark.parametrize("val", [False, True])
def test_fit_computes_distance(val: bool) -> None:
    x, y = blobs()
    model = ordinary()
    held_out = blobs(seed=1) if val else None
    config = TrainConfig(epochs=4, batch_size=60, learning_rate=0.01, progress=False)
    fit(model, (x, y), held_out, config)
    assert bool(model.distance_radius.fitted)
    fitted, prediction = copy.deepcopy(model.distance_radius.state_dict()), model.predict(2 * x)
    model.fit_distance(x, y, held_out)
    torch.testing.assert_close(model.predict(2 * x).upper, prediction.upper, rtol=1e-4, atol=1e-5)
    again = fit(model, (x, y), held_out, config)
    assert again.rows[-1]["val_width"] is None  # training does not use the distance
    assert not torch.equal(
        model.distance_radius.distances[0].directions, fitted["distances.0.directions"]
    )


def test_lazy_datasets(tmp_path: object) -> None:
    x, y = blobs()

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
            return x[i], int(y[i])

    config = TrainConfig(epochs=1, progress=False)
    trained, read = ordinary().double(), ordinary().double()
    fit(trained, (x, y), None, config)
    fit(read, Rows(), None, config)
    torch.testing.assert_close(read.state_dict(), trained.state_dict(), rtol=1e-6, atol=1e-6)
    whole, batched = ordinary(distance=1.0), ordinary(distance=1.0)
    whole.fit_distance(x, y)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=70)
    batched.fit_distance(loader, held_out=None)
    torch.testing.assert_close(
        batched.predict(2 * x).upper, whole.predict(2 * x).upper, rtol=1e-4, atol=1e-5
    )


class Flow(torch.utils.data.IterableDataset):
    """Stream of rows that has no length."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        yield from zip(self.x, self.y.tolist(), strict=True)


def forms(x: torch.Tensor, y: torch.Tensor, path: Path) -> dict[str, Any]:
    """Return the same rows in all formats that are read in batches."""
    np.save(path, x.numpy())
    mapped = np.load(path, mmap_mode="r")
    batches = list(zip(x.split(70), y.split(70), strict=True))
    return {
        "iterable": Flow(x, y),
        "loader": torch.utils.data.DataLoader(Flow(x, y), batch_size=64),
        "pairs": torch.utils.data.TensorDataset(x, y),
        "batches": batches,
        "iterator": iter(batches),
        "memory map": (mapped, y),
    }


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    ("form", "network"),
    [
        ("iterable", "perceptron"),
        ("iterable", "convolutions"),
        ("loader", "sound"),
        ("pairs", "perceptron"),
        ("batches", "perceptron"),
        ("iterator", "perceptron"),
        ("memory map", "perceptron"),
    ],
)
def test_streams_and_tensors_give_equal_distances(
    held: bool, form: str, network: str, tmp_path: Path
) -> None:
    x, y = blobs(400)
    torch.manual_seed(0)
    if network == "convolutions":
        x = x.view(-1, 1, 2, 2).repeat(1, 1, 3, 3)
        model = CreINN(models.resnet8(3, in_channels=1, width=4, layers=torch.nn), distance=True)
    elif network == "sound":
        # without a ReLU, because the directions of dead units have no variance and are arbitrary
        network = torch.nn.Sequential(inn.Linear(4, 3), inn.Tanh(), inn.Linear(3, 3))
        model = CreINN(network, mode="sound", distance=True)
    else:
        model = ordinary()
    model.double().train()(x.double())
    whole, stream, new = model, copy.deepcopy(model), (x[:100] + 0.1, y[:100])
    whole.fit_distance(x, y, held_out=new if held else None)
    given = forms(x, y, tmp_path / "train.npy")[form]
    apart = forms(*new, tmp_path / "new.npy")[form] if held else None
    stream.fit_distance(*(given if isinstance(given, tuple) else (given,)), held_out=apart)
    for name, value in whole.distance_radius.state_dict().items():
        if not name.endswith(("directions", "means", "axes")):  # eigenvectors have either sign
            torch.testing.assert_close(
                stream.distance_radius.state_dict()[name], value, rtol=1e-6, atol=1e-6
            )
    expected, found = whole.predict(3 * x), stream.predict(3 * x)
    torch.testing.assert_close(found.upper, expected.upper, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.lower, expected.lower, rtol=1e-6, atol=1e-6)


def test_large_data_are_subsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(3000)
    whole, sampled = ordinary().double().fit_distance(x, y), ordinary().double()
    monkeypatch.setattr("creinn.distance.fitting.Sample", partial(Sample, 1000))
    sampled.fit_distance(Flow(x, y))
    one, other = (model.distance_radius for model in (whole, sampled))
    torch.testing.assert_close(
        other.distances[0].deviations, one.distances[0].deviations, rtol=1e-9, atol=1e-9
    )
    assert other.medians[0].item() == pytest.approx(one.medians[0].item(), rel=0.1)
    assert other.medians[0] != one.medians[0]
    assert 0.5 < other.scale / one.scale < 2


def test_exhausted_stream_raises() -> None:
    x, y = blobs()

    class Once(torch.utils.data.IterableDataset):
        rows = zip(x, y.tolist(), strict=True)

        def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
            return self.rows

    with pytest.raises(ValueError, match="300 rows"):
        ordinary().fit_distance(Once())


def test_fit_distance_of_trained_model(tmp_path: object) -> None:
    x, y = blobs()
    model = CreINN(models.mlp(4, 3, hidden=(8,))).eval()
    before = model.predict(x)
    model.fit_distance(x, y)
    assert model.distance is True
    assert bool((model.predict(x).width.sum(1) >= before.width.sum(1) - 1e-5).all())
    model.save(tmp_path)
    torch.testing.assert_close(load(tmp_path).predict(x).lower, model.predict(x).lower)


@pytest.mark.parametrize("combine", ["average", "envelope"])
def test_ensembles(combine: str, tmp_path: object) -> None:
    x, y = blobs()
    members = [ordinary(seed, distance=0.5) for seed in range(3)]
    for member in members[:2]:
        member.fit_distance(x, y)
    ensemble = Ensemble(members, combine=combine)
    with pytest.raises(RuntimeError, match="fit_distance"):
        ensemble.predict(x)
    members[2].fit_distance(x, y)
    whole, sets = ensemble.predict(x), [member.predict(x) for member in members]
    lowest = torch.stack([s.lower for s in sets])
    torch.testing.assert_close(
        whole.lower, lowest.mean(0) if combine == "average" else lowest.amin(0)
    )
    ensemble.save(tmp_path)
    again = load(tmp_path)
    assert again.combine == combine
    torch.testing.assert_close(again.predict(x).upper, whole.upper)


@pytest.mark.parametrize("kind", ["ordinary", "hooked", "places", "double", "sound"])
def test_save_and_export(kind: str, tmp_path: object) -> None:
    torch.manual_seed(0)
    x, y = blobs()
    if kind == "hooked":
        model = CreINN(
            torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)),
            distance=True,
        )
    elif kind == "places":
        network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        model = CreINN(network, distance=True, feature_layers=("0", "1"))
    elif kind == "sound":
        network = models.mlp(4, 3, hidden=(8,))
        inn.scale_radii_(network, 0.01)
        model = CreINN(network, mode="sound", distance=0.5, loss="bounds")
    else:
        model = ordinary()
    if kind == "double":
        model, x = model.double(), x.double()
    model.eval().fit_distance(x, y)
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.options() == model.options()
    torch.testing.assert_close(again.predict(2 * x).lower, model.predict(2 * x).lower)
    assert again.distance_radius.scale == model.distance_radius.scale > 0
    assert again.distance_is_current
    for name, tensor in model.state_dict().items():
        if name.endswith("fitted_on._extra_state"):
            continue  # a rebuilt network consists of other modules
        assert torch.equal(again.state_dict()[name], tensor)
        assert again.state_dict()[name].stride() == tensor.stride()  # products depend on the layout
    program = torch.export.export(model, (x[:6],), dynamic_shapes=({0: torch.export.Dim("rows")},))
    exported = program.module()(3 * x[:9])
    torch.testing.assert_close(exported.lower, model(3 * x[:9]).lower)
    torch.testing.assert_close(exported.upper, model(3 * x[:9]).upper)


def test_gradients_of_distant_inputs_are_finite() -> None:
    x, y = blobs()
    model = ordinary(distance=1.0)
    model.eval().fit_distance(x, y)
    inputs = torch.cat(
        [x[:5], 1e3 * x[:5], model.network.body[0].weight.new_zeros(1, 4)]
    ).requires_grad_()
    model(inputs).epistemic.sum().backward()
    assert bool(torch.isfinite(inputs.grad).all())


def test_invalid_arguments_raise() -> None:
    x, y = blobs()
    with pytest.raises(ValueError, match="distance=True"):
        CreINN(models.mlp(4, 3, layers=torch.nn), distance=False)
    with pytest.raises(TypeError, match="'far'"):
        ordinary(distance="far")
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="distance must be a finite number >= 0"):
            ordinary(distance=wrong)
    with pytest.raises(ValueError, match="'hinge'"):
        ordinary(loss="hinge")
    model = ordinary()
    with pytest.raises(RuntimeError, match="fit_distance"):
        model.predict(x)
    with pytest.raises(TypeError, match="Interval"):
        model(Interval(x, x + 1))
    with pytest.raises(TypeError, match="Interval"):
        model.fit_distance(Interval(x, x + 1), y)
    with pytest.raises(ValueError, match="299"):
        model.fit_distance(x, y[1:])
    with pytest.raises(ValueError, match=r"0 \.\. 2"):
        model.fit_distance(x, y + 1)
    with pytest.raises(TypeError, match="pair"):
        model.fit_distance(x)
    with pytest.raises(ValueError, match="held-out data are empty"):
        model.fit_distance(x, y, held_out=(x[:0], y[:0]))
    with pytest.raises(ValueError, match="layer7"):
        ordinary(feature_layers=("layer7",))
    twice = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    twice.insert(1, twice[0])
    with pytest.raises(ValueError, match="2 times"):
        CreINN(twice, distance=True, feature_layers=("0",)).fit_distance(x, y)
    flat = torch.nn.Sequential(
        torch.nn.Flatten(0), torch.nn.Unflatten(0, (-1, 4)), torch.nn.Linear(4, 3)
    )
    with pytest.raises(ValueError, match=r"\(128,\)"):
        CreINN(flat, distance=True, feature_layers=("0",)).fit_distance(x, y)
    with pytest.raises(ValueError, match="'union'"):
        Ensemble([model], combine="union")
