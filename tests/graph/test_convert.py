"""Tests of the conversion of ordinary networks to interval networks."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from creinn import models
from creinn import nn as inn
from creinn.graph.convert import ConversionError, convert
from creinn.interval import Interval
from creinn.nn import relative


class Block(nn.Module):
    """Residual block with a shared in-place ReLU and an in-place sum."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        identity = self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class Functional(nn.Module):
    """Network with many functions, methods and operators in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.blocks = nn.ModuleList([Block(4, 4), Block(8, 4)])
        self.dense = nn.Linear(4 * 4 * 4 + 4, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor, scale: float = 2.0, mask: Tensor | None = None) -> Tensor:
        x = F.relu(self.conv(x), inplace=True)
        y = self.blocks[0](x)
        y = self.blocks[1](torch.cat([y, x], dim=1))
        y = F.max_pool2d(y, 2) * scale - 0.5
        b, c, _, _ = y.shape
        pooled = y.mean([2, 3])
        y = F.pad(y, (1, 1, 1, 1), value=-0.25)[:, :, 1:-1, 1:-1]
        y = F.dropout(y, 0.25, training=self.training)
        y = torch.flatten(F.gelu(y), 1) if mask is None else mask
        y = torch.cat((y.view(y.size(0), -1), pooled.reshape(b, c)), 1)
        y = F.leaky_relu(self.dense(1 - y), 0.1).tanh().contiguous()
        return self.out(y + torch.sigmoid(y) / 2)


def networks() -> dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]]:
    return {
        "functional": lambda: (Functional(), (5, 3, 8, 8)),
        "mlp": lambda: (models.mlp(6, 3, hidden=(8, 7), layers=nn), (5, 6)),
        "plain": lambda: (nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (5, 6)),
        "resnet8": lambda: (models.resnet8(3, width=4, layers=nn), (5, 3, 8, 8)),
        "resnet50": lambda: (models.resnet50(3, width=2, layers=nn), (5, 3, 8, 8)),
    }


def make(name: str) -> tuple[nn.Module, Tensor]:
    """Return a network in eval mode with running statistics, and inputs in float64."""
    torch.manual_seed(0)
    network, shape = networks()[name]()
    network.double()
    for _ in range(3):
        network(torch.randn(shape, dtype=torch.float64))
    return network.eval(), torch.randn(shape, dtype=torch.float64)


def without_radii(network: nn.Module) -> nn.Module:
    for layer in network.modules():
        if isinstance(layer, inn.IntervalParameters):
            for radius in layer.radii().values():
                radius.data.zero_()
    return network


by_family = pytest.mark.parametrize("layers", ["interval", "relative"])


@by_family
@pytest.mark.parametrize("mode", ["paper", "sound"])
@pytest.mark.parametrize("name", sorted(networks()))
def test_network_without_radii_is_equal_to_the_source(name: str, mode: str, layers: str) -> None:
    source, x = make(name)
    twin = without_radii(convert(source, mode=mode, layers=layers))
    y = twin(x)
    assert isinstance(y, Interval)
    torch.testing.assert_close(y.lower, source(x))
    torch.testing.assert_close(y.upper, source(x))


@by_family
@pytest.mark.parametrize("name", sorted(networks()))
def test_sound_network_encloses_the_source_and_its_members(name: str, layers: str) -> None:
    source, x = make(name)
    twin = convert(source, radius=0.01, mode="sound", layers=layers)
    y = twin(x)
    assert bool((y.lower < y.upper).all())
    member = copy.deepcopy(source)
    parts = dict(member.named_modules())
    for seed in range(3):
        assert bool((y.lower <= member(x) + 1e-9).all())
        assert bool((member(x) <= y.upper + 1e-9).all())
        torch.manual_seed(seed)
        for path, layer in twin.named_modules():
            if isinstance(layer, inn.IntervalParameters):
                weight = layer.weight_interval
                parts[path].weight.data = (
                    weight.lower + torch.rand_like(weight.lower).round() * weight.width
                )


def test_modes_are_equal_for_a_network_without_norms() -> None:
    source, x = make("plain")
    torch.testing.assert_close(convert(source)(x).upper, convert(source, mode="sound")(x).upper)


@by_family
@pytest.mark.parametrize("name", sorted(networks()))
def test_state_keys(name: str, layers: str) -> None:
    source, _ = make(name)
    twin = convert(source, layers=layers)
    keys = [key for key in twin.state_dict() if not key.endswith("_radius")]
    assert keys == list(source.state_dict())
    for key, tensor in source.state_dict().items():
        torch.testing.assert_close(
            twin.state_dict()[key][: len(tensor)] if tensor.ndim else tensor, tensor
        )


@by_family
@pytest.mark.parametrize("name", sorted(networks()))
def test_initial_radii_are_positive_and_have_gradients(name: str, layers: str) -> None:
    source, x = make(name)
    twin = convert(source, layers=layers)
    y = twin(torch.cat([x + 0.3 * torch.randn_like(x) for _ in range(40)]))
    (y.width.square().sum() + y.center.square().sum()).backward()
    for path, layer in twin.named_modules():
        if not isinstance(layer, inn.IntervalParameters):
            continue
        assert bool((layer.weight_radius > 0).all()), path
        for name, radius in layer.radii().items():
            dead = radius.grad == 0  # for units that are zero for all inputs
            assert not bool(dead.all()), path
            if name != "relative_radius":
                assert bool((layer.center_of(name).grad[dead] == 0).all()), path


def test_radii_by_hand() -> None:
    source = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    source[0].weight.data = torch.tensor([[3.0, -1.0], [0.0, 0.0], [4.0, 4.0]], dtype=torch.float64)
    source[2].weight.data = torch.tensor([[1.0, -2.0, 2.0]], dtype=torch.float64)
    twin = convert(source, radius=0.3)
    assert twin.get_submodule("2").weight_radius.tolist() == [
        pytest.approx([0.5] * 3)
    ]  # 0.3 * (1 + 2 + 2) / 3
    growth = 5 / 3  # (1 + 2 + 2) / sqrt(1 + 4 + 4)
    rows = [2.0, 2.0, 4.0]  # the means of the rows; the mean of the layer for the row of zeros
    expected = [pytest.approx([0.3 * row / growth] * 2) for row in rows]
    assert twin.get_submodule("0").weight_radius.tolist() == expected
    assert twin.get_submodule("0").bias_radius.tolist() == [0.0] * 3


def test_relative_radii_by_hand() -> None:
    source = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    source[2].weight.data = torch.tensor([[1.0, -2.0, 2.0]], dtype=torch.float64)
    twin = convert(source, radius=0.3, layers=relative)
    assert twin.get_submodule("2").relative_radius.tolist() == pytest.approx([0.3] * 3)
    assert twin.get_submodule("2").weight_radius.tolist() == [pytest.approx([0.3, 0.6, 0.6])]
    assert twin.get_submodule("0").relative_radius.tolist() == pytest.approx(
        [0.3 / (5 / 3)] * 2
    )  # growth as above
    assert twin.get_submodule("0").bias_radius.tolist() == [0.0] * 3


def test_invalid_families_and_radii() -> None:
    with pytest.raises(ValueError, match="'ordinary'"):
        convert(nn.Linear(2, 1), layers="ordinary")
    with pytest.raises(ValueError, match=r"0\.996\d*, got 1"):
        convert(nn.Linear(2, 1), radius=1.0, layers="relative")
    assert convert(nn.Linear(2, 1), radius=1.0, layers=inn).weight_radius.shape == (1, 2)


def test_radius_branch_of_a_norm_by_hand() -> None:
    source = nn.Sequential(nn.Linear(2, 1, bias=False), nn.BatchNorm1d(1))
    source[0].weight.data = torch.tensor([[3.0, 4.0]])
    source[1].weight.data.fill_(-2.0)
    norm = convert(source).get_submodule("1")
    assert norm.weight.tolist() == pytest.approx([-2.0, 2.0 / 1.4])  # growth (3 + 4) / 5
    assert norm.mode == "paper"
    plain = convert(nn.Sequential(source[0], nn.BatchNorm1d(1, affine=False))).get_submodule("1")
    assert plain.running_var.tolist() == pytest.approx([1.0, 1.4**2])
    assert convert(source, mode="sound").get_submodule("1").mode == "sound"


def test_layer_of_zeros_has_positive_radii() -> None:
    source = nn.Sequential(nn.Linear(4, 2))
    nn.init.zeros_(source[0].weight)
    assert (
        convert(source, radius=0.1).get_submodule("0").weight_radius.tolist()
        == [pytest.approx([0.05] * 4)] * 2
    )


def test_source_is_not_changed() -> None:
    source, _ = make("functional")
    source.train()
    source.blocks[0].bn1.eval()
    before = copy.deepcopy(source.state_dict())
    flags = {path: part.training for path, part in source.named_modules()}
    convert(source)
    assert {path: part.training for path, part in source.named_modules()} == flags
    for key, tensor in source.state_dict().items():
        assert torch.equal(tensor, before[key])
    assert not any(isinstance(layer, inn.IntervalParameters) for layer in source.modules())


def test_flags_dtype_and_requires_grad() -> None:
    source, _ = make("functional")
    source.train()
    source.blocks[0].bn1.eval()
    source.conv.requires_grad_(False)
    twin = convert(source)
    assert twin.training
    assert not twin.get_submodule("blocks.0.bn1").training
    assert twin.get_submodule("blocks.0.bn2").training
    assert not twin.get_submodule("conv").weight_radius.requires_grad
    assert twin.get_submodule("dense").weight_radius.requires_grad
    assert {parameter.dtype for parameter in twin.parameters()} == {torch.float64}
    assert not convert(source.eval()).training


def test_functional_dropout_follows_the_mode() -> None:
    source, x = make("functional")
    twin = convert(source)
    torch.testing.assert_close(twin(x).lower, twin(x).lower)
    twin.get_submodule("functional_dropout_0").train()
    torch.manual_seed(0)
    first = twin(x)
    assert not torch.equal(first.lower, twin(x).lower)
    assert bool((first.lower <= first.upper).all())


def test_dropout_that_is_always_on() -> None:
    class Always(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(50, 50)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(self.fc(x), 0.5)

    twin = convert(Always().eval())
    assert (twin(torch.randn(1, 50)).lower == 0).sum() > 10


def test_shared_layers() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = self.a

        def forward(self, x: Tensor) -> Tensor:
            return self.b(F.relu(self.a(x)))

    source = Shared()
    twin = convert(source)
    assert twin.get_submodule("a") is twin.get_submodule("b")
    assert {key for key in twin.state_dict() if "radius" not in key} == set(source.state_dict())
    assert twin(torch.randn(2, 3)).shape == (2, 3)


def test_copies_and_pickles() -> None:
    source, x = make("functional")
    twin = convert(source)
    for again in (copy.deepcopy(twin), pickle.loads(pickle.dumps(twin))):
        torch.testing.assert_close(again(x).upper, twin(x).upper)
        assert list(again.state_dict()) == list(twin.state_dict())


def test_interval_inputs() -> None:
    source, x = make("functional")
    twin = convert(source, mode="sound")
    wide = twin(Interval(x - 0.01, x + 0.01))
    assert bool((wide.lower <= twin(x).lower).all())
    assert bool((wide.upper >= twin(x).upper).all())


def test_sum_with_the_input() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.fc(x.relu())

    source = Skip()
    x = torch.randn(4, 3)
    y = without_radii(convert(source))(x)
    torch.testing.assert_close(y.lower, source(x))


def test_single_layers() -> None:
    assert isinstance(convert(nn.Linear(3, 2)), inn.Linear)
    assert isinstance(convert(nn.Linear(3, 2), layers="relative"), relative.Linear)
    with pytest.raises(ConversionError, match="ReLU"):
        convert(nn.ReLU())


# Accuracy and width after the conversion of trained networks.


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32)
    return (images - images.mean()) / images.std(), torch.tensor(labels)


@pytest.mark.parametrize(
    ("name", "epochs"),
    [("mlp", 12), ("plain", 12), ("resnet8", 3), ("resnet20", 3)],
    ids=lambda value: str(value),
)
def test_accuracy_and_width(digits: tuple[Tensor, Tensor], name: str, epochs: int) -> None:
    torch.manual_seed(0)
    images, labels = digits
    if name in ("mlp", "plain"):
        hidden = (64, 64) if name == "mlp" else (64, 64, 64)
        source: nn.Module = models.mlp(64, 10, hidden=hidden, batch_norm=name == "mlp", layers=nn)
    else:
        images = images.view(-1, 1, 8, 8)
        source = models.BUILDERS[name](10, in_channels=1, layers=nn)
    order = torch.randperm(len(labels))
    train, test = order[:1200], order[1200:]
    optimizer = torch.optim.Adam(source.parameters(), 2e-3)
    for _ in range(epochs):
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            F.cross_entropy(source(images[batch]), labels[batch]).backward()
            optimizer.step()
    source.eval()
    with torch.no_grad():
        ordinary = source(images[test])
    accuracy = (ordinary.argmax(1) == labels[test]).double().mean()
    assert accuracy > 0.9
    for layers in ("interval", "relative"):
        with torch.no_grad():
            logits = convert(source.eval(), layers=layers)(images[test])
            training = convert(source.train(), layers=layers)(images[test])
        lower, upper = interval_softmax(logits)
        label = intersection(lower, upper).argmax(1)
        assert (label == labels[test]).double().mean() == pytest.approx(accuracy.item(), abs=0.005)
        assert 0.02 < logits.radius.mean() / ordinary.std() < 0.2
        assert 5e-4 < (upper - lower).mean() < 0.05
        assert bool((upper > lower).any(1).all())
        assert (logits.contains(ordinary)).double().mean() > 0.99
        started = intersection(*interval_softmax(training)).argmax(1)
        assert (started == labels[test]).double().mean() > accuracy - 0.05  # in training mode


def interval_softmax(logits: Interval) -> tuple[Tensor, Tensor]:
    """Compute (IntSoftMax) for each class."""
    bounds = []
    for k in range(logits.shape[1]):
        others = torch.cat([logits.center[:, :k], logits.center[:, k + 1 :]], 1).logsumexp(1)
        bounds.append(
            (torch.sigmoid(logits.lower[:, k] - others), torch.sigmoid(logits.upper[:, k] - others))
        )
    lower, upper = zip(*bounds, strict=True)
    return torch.stack(lower, 1), torch.stack(upper, 1)


def intersection(lower: Tensor, upper: Tensor) -> Tensor:
    share = (1 - lower.sum(1)) / (upper - lower).sum(1)
    return lower + share[:, None] * (upper - lower)
