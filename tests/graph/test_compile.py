"""Tests that compiled models predict the same credal sets."""

import copy

import pytest
import torch
from torch import fx

from creinn import CredalSet, CreINN, Ensemble, Interval, convert, diagnose, models
from creinn import nn as inn
from creinn.baselines import SNN
from creinn.classifier.base import Classifier
from creinn.graph.checks import GraphError
from creinn.graph.compile import Compiled, compile

IMAGES = (24, 3, 16, 16)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(6)  # for the weights of the networks


def trained(network, shape=IMAGES, steps=5, radii=1.0, **options):
    """Return a CreINN after a few steps of the optimizer.

    The radii are not trained in sound mode. The model is trained in float64, so that the result is
    the same on all processors up to the rounding of float32.
    """
    torch.manual_seed(0)
    model = CreINN(network.double(), **options)
    inn.scale_radii_(model, radii)
    for layer in model.modules():
        if hasattr(layer, "momentum"):
            layer.momentum = 0.5
    x, y = torch.randn(shape, dtype=torch.float64), torch.randint(0, model.num_classes, shape[:1])
    learning = [
        p for name, p in model.named_parameters() if model.mode != "sound" or "radius" not in name
    ]
    optimiser = torch.optim.Adam(learning, 1e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        model.loss(model(x), y).backward()
        optimiser.step()
        model.after_step()
    if model.distance_radius is not None:
        model.fit_distance(x, y)
    return model.float().eval()


def inputs(shape=IMAGES, seed=1, width=0.1):
    """Return points, intervals of any sign and intervals with the flag ``nonnegative``."""
    generator = torch.Generator().manual_seed(seed)
    x, w = torch.randn(shape, generator=generator), width * torch.rand(shape, generator=generator)
    return {
        "points": x,
        "signed": Interval(x - w, x + w),
        "nonnegative": Interval(x.abs(), x.abs() + w),
    }


def assert_same(got, expected, tolerance=5e-5):
    assert type(got) is CredalSet
    assert got.lower.dtype == expected.lower.dtype
    torch.testing.assert_close(got.lower, expected.lower, rtol=0, atol=tolerance)
    torch.testing.assert_close(got.upper, expected.upper, rtol=0, atol=tolerance)


def assert_same_everywhere(model, shape=IMAGES, tolerance=5e-5, dtype=torch.float32, width=0.1):
    """Compare the compiled model with the model for all kinds of inputs.

    The difference in float64 is at most 1e-9. In float32 the difference is at most the tolerance, or 50
    times the difference between the model in float32 and in float64.
    """
    fast, exact = compile(model), copy.deepcopy(model).double()
    fast_exact = compile(exact)
    for x in inputs(shape, width=width).values():
        expected, true = model(x.to(dtype)), exact(x.to(torch.float64))
        assert_same(fast_exact(x.to(torch.float64)), true, 1e-9)
        own = max(
            (getattr(expected, b).double() - getattr(true, b)).abs().max().item()
            for b in ("lower", "upper")
        )
        assert_same(fast(x.to(dtype)), expected, max(tolerance, 50 * own))
        assert 1e-4 < expected.width.mean() < 0.95
        assert expected.lower.std(0).max() > 1e-4


NETWORKS = {
    "resnet8": lambda: models.resnet8(4, width=8),
    "resnet18": lambda: models.resnet18(4, width=8),
    "resnet18 imagenet": lambda: models.resnet18(4, "imagenet", width=8),
    "resnet50": lambda: models.resnet50(4, width=4),
    "resnet50 imagenet": lambda: models.resnet50(4, "imagenet", width=4),
    "relative": lambda: models.resnet8(4, width=8, layers="relative"),
    "converted": lambda: convert(models.resnet8(4, width=8, layers=torch.nn)),
    "one logit": lambda: models.resnet8(1, width=8),
}


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_images(name):
    with torch.enable_grad():
        model = trained(NETWORKS[name]())
    assert_same_everywhere(model)


@pytest.mark.parametrize("layers", ["interval", "relative"])
@torch.no_grad()
def test_scaled_mode(layers):
    with torch.enable_grad():
        model = trained(models.resnet8(4, width=8, layers=layers), mode="scaled")
    assert_same_everywhere(model)


@pytest.mark.parametrize("layers", ["interval", "relative"])
@torch.no_grad()
def test_sound_mode(layers):
    with torch.enable_grad():
        model = trained(models.resnet8(4, width=8, layers=layers), radii=1e-7, mode="sound")
    # The radii are similar to the rounding errors of float32.
    fast, exact = compile(model), model.double()
    for kind, x in inputs(width=1e-7).items():
        if kind != "signed":
            assert_same(fast(x).to(torch.float64), exact(x.to(torch.float64)), 1e-5)
    assert_same_everywhere(exact, tolerance=1e-9, dtype=torch.float64, width=1e-7)


@pytest.mark.parametrize(
    "options", [{}, {"logit_norm": False}, {"mode": "scaled"}, {"distance": 0.5}]
)
@torch.no_grad()
def test_mlps(options):
    with torch.enable_grad():
        model = trained(models.mlp(5, 3, hidden=(16, 12)), (40, 5), radii=0.1, **options)
    assert_same_everywhere(model, (40, 5))


@torch.no_grad()
def test_float64():
    with torch.enable_grad():
        model = trained(models.resnet18(4, width=8)).double()
    assert_same_everywhere(model, tolerance=1e-12, dtype=torch.float64)


@pytest.mark.parametrize("combine", ["average", "envelope"])
@torch.no_grad()
def test_ensembles(combine):
    with torch.enable_grad():
        members = [
            trained(models.mlp(5, 3, hidden=(16,)), (40, 5)),
            trained(models.mlp(5, 3, hidden=(8,)), (40, 5)),
        ]
    assert_same_everywhere(Ensemble(members, combine=combine), (40, 5))


@pytest.mark.parametrize("layers", ["ordinary", "interval"])
@torch.no_grad()
def test_distance(layers):
    with torch.enable_grad():
        model = trained(models.resnet8(4, width=8, layers=layers), distance=0.3)
        converted = trained(convert(models.resnet8(4, width=8, layers=torch.nn)), distance=0.3)
    x = 3 * inputs()["points"]
    near, fast = copy.deepcopy(model), compile(model)
    near.before_training([], 0)  # forgets it
    assert (model(x).width - near(x).width).mean() > 1e-3
    assert_same(fast(x), model(x))
    assert_same(compile(converted)(x), converted(x))


def test_distance_that_is_not_fitted_raises():
    fast = compile(CreINN(models.mlp(5, 3), distance=True).eval())
    with pytest.raises(RuntimeError, match="not fitted"):
        fast.predict(torch.zeros(2, 5))


def test_ordinary_network_with_intervals_raises():
    fast = compile(trained(models.mlp(5, 3, layers="ordinary"), (40, 5), radii=1.0, distance=0.5))
    with pytest.raises(TypeError, match="ordinary network"):
        fast(inputs((4, 5))["signed"])


@torch.no_grad()
def test_prediction_in_batches():
    with torch.enable_grad():
        model = trained(models.mlp(5, 3), (40, 5))
    fast, x = compile(model), torch.randn(30, 5)
    assert isinstance(fast, Compiled)
    assert isinstance(fast, Classifier)
    assert fast.num_classes == 3
    assert_same(fast.predict(x, batch_size=7), model.predict(x))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, torch.zeros(30)), batch_size=8
    )
    assert_same(fast.predict(loader), model.predict(x))


def test_model_is_not_changed():
    model = trained(models.resnet8(3, width=4), (8, 3, 16, 16)).train()
    model.network.bn1.eval()
    before = copy.deepcopy(model.state_dict())
    modes = {name: part.training for name, part in model.named_modules()}
    x = inputs((4, 3, 16, 16))["points"]
    fast = compile(model, x)
    expected = fast(x)
    assert {name: part.training for name, part in model.named_modules()} == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    ours = {parameter.data_ptr() for parameter in model.parameters()}
    assert ours.isdisjoint(tensor.data_ptr() for tensor in [*fast.parameters(), *fast.buffers()])
    model.loss(model(x), torch.zeros(4, dtype=torch.long)).backward()
    torch.optim.SGD(model.parameters(), 1.0).step()
    for kind in inputs((4, 3, 16, 16)).values():
        assert fast(kind).lower.isfinite().all()
    assert_same(fast(x), expected, 0)


def test_no_gradients():
    fast = compile(CreINN(models.mlp(5, 3)).eval())
    x = torch.randn(4, 5, requires_grad=True)
    assert not fast(x).lower.requires_grad
    assert not any(parameter.requires_grad for parameter in fast.parameters())
    assert x.grad is None


def test_inputs_are_not_changed():
    fast = compile(CreINN(models.resnet8(3, width=4)).eval())
    for x in inputs((2, 3, 16, 16)).values():
        before = copy.deepcopy(x)
        fast(x)
        pairs = (
            [(x, before)]
            if isinstance(x, torch.Tensor)
            else [(x.lower, before.lower), (x.upper, before.upper)]
        )
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("size", [8, 16])
@torch.no_grad()
def test_example_of_another_size(size):
    with torch.enable_grad():
        model = trained(models.resnet18(4, "imagenet", width=8), (24, 3, 32, 32))
    prepared = compile(model, torch.zeros(1, 3, 32, 32), native=False)
    cropped = [part for part in prepared.modules() if getattr(part, "cropped", None) is not None]
    assert len(cropped) == 5  # the convolutions of the last stage
    for other in (size, 32):
        x = inputs((6, 3, other, other))["signed"]
        assert_same(prepared(x), model(x))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@torch.no_grad()
def test_memory_formats(memory_format):
    with torch.enable_grad():
        model = trained(models.resnet8(4, width=8))
    fast = compile(model, memory_format=memory_format, native=False)
    strided = memory_format == torch.channels_last
    kernels = [p for p in fast.parameters() if p.ndim == 4 and p.shape[1] > 1 and p.shape[2] > 1]
    assert all(p.is_contiguous(memory_format=torch.channels_last) == strided for p in kernels)
    for x in inputs().values():
        assert_same(fast(x), model(x))


def test_cast_after_compilation():
    model = trained(models.resnet8(4, width=8))
    x = inputs()["points"].double()
    fast = compile(model, x.float()).double()
    with torch.no_grad():
        assert_same(fast(x), model.double()(x), 1e-5)


@pytest.mark.parametrize("kind", ["points", "signed"])
def test_export(kind):
    model = trained(models.resnet8(3, width=4), (8, 3, 16, 16))
    x, fast = inputs((5, 3, 16, 16))[kind], compile(model, native=False)
    dynamic = {"x": {0: torch.export.Dim("rows")}} if kind == "points" else None
    program = torch.export.export(fast, (x,), dynamic_shapes=dynamic)
    y = inputs((7 if dynamic else 5, 3, 16, 16), seed=2)[kind]
    assert_same(program.module()(y), fast(y), 1e-6)
    with torch.no_grad():
        assert_same(program.module()(y), model(y))


def test_torch_compile_sees_one_graph(monkeypatch):
    model = trained(models.resnet8(3, width=4), (8, 3, 16, 16))
    original, seen = fx.GraphModule.compile, []

    def without_a_compiler(self):
        original(self, backend=lambda graph, _: seen.append(graph) or graph.forward, fullgraph=True)

    monkeypatch.setattr(fx.GraphModule, "compile", without_a_compiler)
    fast, x = compile(model, torch_compile=True), inputs((8, 3, 16, 16))["points"]
    with torch.no_grad():
        assert_same(fast(x), model(x))
    assert len(seen) == 1


def test_all_layers_are_in_eval_mode():
    """Otherwise each call of predict copies the model."""
    model = CreINN(models.resnet8(3, width=4)).eval()
    x = torch.rand(2, 3, 8, 8)
    fast = compile(model, x)
    fast.predict(x)
    assert not any(part.training for part in fast.modules())


def test_training_raises():
    fast = compile(CreINN(models.mlp(5, 3)))
    assert not any(part.training for part in fast.modules())
    with pytest.raises(ValueError, match="trained"):
        fast.train()
    assert fast.eval() is fast


def test_saving_raises(tmp_path):
    with pytest.raises(TypeError, match="Compiled"):
        compile(CreINN(models.mlp(5, 3))).save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_other_models_raise():
    with pytest.raises(TypeError, match="SNN"):
        compile(SNN(models.mlp(5, 3, layers=torch.nn)))


def test_network_that_is_not_a_graph_raises():
    class Doubled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = inn.Linear(5, 3)

        def forward(self, x):
            return self.layer(x) if x.sum().lower > 0 else self.layer(-x)

    with pytest.raises(GraphError, match="Doubled"):
        compile(CreINN(Doubled()))


def test_invalid_inputs_raise():
    with pytest.raises(TypeError, match="Interval"):
        compile(CreINN(models.mlp(5, 3)))([1.0])


def overflowing(family, **options):
    """Return a model that overflows for inputs of about 1e9."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        family.Linear(2, 4), family.ReLU(), family.Linear(4, options.get("num_logits", 3))
    )
    with torch.no_grad():
        network[0].weight.mul_(1e30)
    return CreINN(network, **options)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((inn, {"mode": mode}) for mode in ("paper", "scaled", "sound")),
        (inn, {"num_logits": 1, "mode": "sound"}),
        (inn, {"logit_norm": False}),
        (inn, {"distance": 0.001}),
        (torch.nn, {"distance": 0.001}),
    ],
)
@pytest.mark.filterwarnings("ignore:The distance is not used in training mode")
@torch.no_grad()
def test_vacuous_set_after_overflow(family, options):
    model = overflowing(family, **options)
    x = torch.tensor([[1e-30, -2e-30], [1e9, -1e9], [3e-30, 0.0]])
    if "distance" in options:
        model.fit_distance(torch.randn(60, 2) * 3e-30, torch.arange(60) % 3)
    for found in (model.eval(), compile(model)):
        for data in (x, Interval(x, x)) if family is inn else (x,):
            sets, alone = found(data), found(data[[0, 2]])
            assert (sets.lower[1].tolist(), sets.upper[1].tolist()) == (
                [0.0] * sets.num_classes,
                [1.0] * sets.num_classes,
            )
            torch.testing.assert_close(sets.lower[[0, 2]], alone.lower)
            torch.testing.assert_close(sets.upper[[0, 2]], alone.upper)
            assert bool((alone.width < 1).any())
    if family is inn:
        assert bool(model.train()(x).lower.isnan().any())  # so that the training stops


@torch.no_grad()
def test_diagnosis_of_an_overflow():
    torch.manual_seed(0)
    model = CreINN(models.resnet50(10, width=16), mode="sound").eval()
    x = torch.rand(2, 3, 16, 16)
    for found in (model, compile(model)):
        sets = found(x)
        assert bool((sets.lower == 0).all())
        assert bool((sets.upper == 1).all())
        assert bool(sets.classes("maximality").all())
    calls = {layer.path: layer.nonfinite for layer in diagnose(model, x).layers}
    first = next(path for path, count in calls.items() if count)
    assert (
        f"first in {first}: in eval mode such rows get the vacuous set"
        in diagnose(model, x).verdict
    )
    assert first.startswith("network.layer")
