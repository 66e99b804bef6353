"""Networks of one's own, from construction to the compiled form: each works, or is refused in a sentence."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import creinn
from creinn import CreINN, Ensemble, TrainConfig, fit, load, models
from creinn import nn as inn
from creinn.baselines import SNN, DeepEnsemble
from creinn.classifier.network import check_logits

Y = torch.arange(60) % 3
X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) + Y.unsqueeze(1)
IDS = torch.randint(3, 20, (60, 7), generator=torch.Generator().manual_seed(0))
IDS[:, 0] = Y
IMAGES = X[:, :3, None, None].expand(-1, -1, 4, 4).contiguous()
ONCE = TrainConfig(epochs=1, batch_size=20, progress=False)


class Normed(nn.Module):
    """Layer norm and dropout."""

    def __init__(self, num_logits=3):
        super().__init__()
        self.first, self.norm, self.dropout = nn.Linear(4, 8), nn.LayerNorm(8), nn.Dropout(0.2)
        self.fc = nn.Linear(8, num_logits)

    def forward(self, x):
        return self.fc(self.dropout(self.norm(self.first(x)).relu()))


class Ending(Normed):
    """Something done to the logits."""

    def __init__(self, end, num_logits=3):
        super().__init__(num_logits)
        self.end = end

    def forward(self, x):
        return self.end(super().forward(x))


class Tokens(nn.Module):
    def __init__(self, returns_state=False):
        super().__init__()
        self.embedding, self.gru, self.fc = (
            nn.Embedding(20, 8),
            nn.GRU(8, 8, batch_first=True),
            nn.Linear(8, 3),
        )
        self.returns_state = returns_state

    def forward(self, ids):
        _, state = self.gru(self.embedding(ids))
        return (self.fc(state[-1]), state) if self.returns_state else self.fc(state[-1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.embedding, self.encoder = (
            nn.Embedding(20, 8),
            nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
        )
        self.fc = nn.Linear(8, 3)

    def forward(self, ids):
        return self.fc(self.encoder(self.embedding(ids)).mean(1))


class Mixed(nn.Module):
    """Network with tokens and numbers as inputs, in a dict or a tuple."""

    def __init__(self, keys):
        super().__init__()
        self.tokens, self.fc, self.keys = Tokens(), nn.Linear(7, 3), keys

    def forward(self, parts):
        ids, numbers = (parts[key] for key in self.keys)
        return self.fc(torch.cat((self.tokens(ids), numbers), 1))


class Auxiliary(nn.Module):
    """A second head, which runs in training only, and is defined between body and head."""

    def __init__(self):
        super().__init__()
        self.first, self.aux, self.fc = nn.Linear(4, 8), nn.Linear(8, 5), nn.Linear(8, 3)

    def forward(self, x):
        y = self.first(x).relu()
        return (self.fc(y), self.aux(y)) if self.training else self.fc(y)


class HeadFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.first = nn.Linear(8, 3), nn.Linear(4, 8)

    def forward(self, x):
        return self.fc(input=self.first(x).relu())


def convolutions(*end):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 3, 1), *end
    )


WORKING = {
    "layer norm and dropout": (Normed, X, {}),
    "arrays": (Normed, X.double().numpy()[::-1], {}),
    "tokens": (Tokens, IDS, {}),
    "transformer": (Attention, IDS, {}),
    "a dict": (lambda: Mixed(("ids", "numbers")), {"ids": IDS, "numbers": X}, {}),
    "a tuple": (lambda: Mixed((0, 1)), (IDS.numpy(), X), {}),
    "returns its state": (lambda: Tokens(True), IDS, {"logits_layer": "fc"}),
    "returns a dict": (
        lambda: Ending(lambda logits: {"logits": logits}),
        X,
        {"logits_layer": "fc"},
    ),
    "ends in a softmax": (lambda: Ending(nn.Softmax(1)), X, {"logits_layer": "fc"}),
    "auxiliary head": (Auxiliary, X, {"logits_layer": "fc"}),
    "head defined first": (HeadFirst, X, {"logits_layer": "fc"}),
    "1x1 convolution": (convolutions, IMAGES, {"logits_layer": "3"}),
    "1x1 convolution, flat": (
        lambda: convolutions(nn.Flatten()),
        IMAGES,
        {"num_logits": 3, "feature_layers": ("2",)},
    ),
    "one logit per row": (lambda: Ending(lambda logits: logits.squeeze(1), 1), X, {}),
}


@pytest.mark.filterwarnings("ignore:The architecture of the model is not saved")
@pytest.mark.parametrize("name", WORKING)
def test_custom_networks_end_to_end(name, tmp_path):
    network, x, options = WORKING[name]
    y = Y % 2 if name == "one logit per row" else Y
    torch.manual_seed(0)
    model = CreINN(network(), distance=True, **options)
    fit(model, (x, y), config=ONCE)
    assert not model.training
    prediction = model.predict(x, batch_size=25)
    assert prediction.lower.isfinite().all()
    assert 0 < prediction.width.median() < 0.5 < 1 >= prediction.width.max()
    model.save(tmp_path)
    again = load(tmp_path, network=network()).predict(x, batch_size=25)
    torch.testing.assert_close(again.lower, prediction.lower)
    torch.testing.assert_close(
        creinn.compile(model).predict(x).lower, prediction.lower, atol=1e-5, rtol=1e-4
    )


REFUSED = {
    "returns its state": (lambda: Tokens(True), IDS, r"tuple: \[0\] torch.float32"),
    "returns a dict": (lambda: Ending(lambda y: {"logits": y}), X, r"dict: \['logits'\]"),
    "auxiliary head": (Auxiliary, X, r"tuple"),
    "head defined first": (HeadFirst, X, r"first, fc"),
    "sequence": (
        lambda: Ending(lambda y: y.unsqueeze(1)),
        X,
        r"\(N, 3\), but returns torch.float32 of shape \(20, 1, ",
    ),
    "integers": (
        Normed,
        IDS[:, :4],
        r"Normed cannot be run on inputs of torch.int64 of shape .*\.float\(\)",
    ),
    "bytes": (
        convolutions,
        IMAGES.byte(),
        r"cannot be run on inputs of torch.uint8 of .*Dataset\.scaled\(\)",
    ),
    "two arguments": (lambda: nn.Bilinear(4, 7, 3), (X, X), r"input2"),
    "rows differ": (Normed, {"a": X, "b": IDS[:7]}, r"\['b'\] has 7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_networks_raise_before_training(name):
    network, x, message = REFUSED[name]
    options = (
        {"logits_layer": "3"}
        if name == "bytes"
        else {"feature_layers": ("",), "num_logits": 3}
        if "two" in name
        else {}
    )
    model = (
        SNN(network(), num_logits=3)
        if "two" in name
        else CreINN(network(), distance=True, **options)
    )
    with pytest.raises(ValueError, match=message):
        fit(model, (x, Y), config=ONCE)


def test_invalid_logits_layers_raise():
    with pytest.raises(ValueError, match=r"'last'"):
        CreINN(Normed(), distance=True, logits_layer="last")
    with pytest.raises(ValueError, match=r"num_logits="):
        CreINN(Normed(), distance=True, logits_layer="dropout")
    with pytest.raises(ValueError, match="0 times"):
        CreINN(Auxiliary(), distance=True, logits_layer="aux").fit_distance(X, Y)
    assert CreINN(Normed(), distance=True, logits_layer="fc").options()["logits_layer"] == "fc"


def test_feature_layers_are_checked_by_fit_distance():
    class Backwards(nn.Sequential):
        def forward(self, x):
            return self[0](self[1](x))

    model = CreINN(Backwards(inn.Linear(8, 3), inn.Linear(4, 8)), num_logits=3)
    model.predict(X)
    with pytest.raises(ValueError, match="1, 0"):
        model.fit_distance(X, Y)


def test_logits_layer_is_restored(tmp_path):
    torch.manual_seed(0)
    model = CreINN(HeadFirst(), distance=True, logits_layer="fc").fit_distance(X, Y)
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.logits_layer == "fc"
    torch.testing.assert_close(again.predict(X).lower, model.predict(X).lower)


def test_logits_layer_of_interval_network():
    torch.manual_seed(0)
    layers = (inn.Linear(4, 8), inn.ReLU(), inn.Linear(8, 3))
    model = CreINN(nn.Sequential(*layers, inn.Sigmoid()), logits_layer="2").eval()
    plain = CreINN(nn.Sequential(*layers)).eval()
    torch.testing.assert_close(model.predict(X).lower, plain.predict(X).lower)
    torch.testing.assert_close(creinn.compile(model).predict(X).lower, plain.predict(X).lower)


ENDS = {
    "softmax": (lambda y: y.softmax(1), 3),
    "log-softmax": (lambda y: y.log_softmax(1).view(-1, 3), 3),
    "sigmoid": (lambda y: torch.sigmoid(y).squeeze(1), 1),
}


@pytest.mark.parametrize("kind", [lambda network: CreINN(network, distance=True), SNN])
@pytest.mark.parametrize("name", ENDS)
def test_probabilities_as_logits_raise(name, kind):
    end, logits = ENDS[name]
    model, message = (kind(Ending(end, logits)), rf"Ending ends in a {name}")
    with pytest.raises(ValueError, match=message):
        fit(model, (X, Y.clamp_max(1)), config=ONCE)
    if isinstance(model, CreINN):
        with pytest.raises(ValueError, match=message):
            model.fit_distance(X, Y.clamp_max(1))
    else:
        for classifier in (model, DeepEnsemble([model])):
            with pytest.raises(ValueError, match=message):
                classifier.predict(X)


def test_interval_network_with_sigmoid_raises():
    with pytest.raises(ValueError, match="Sequential ends in a sigmoid"):
        Ensemble([CreINN(nn.Sequential(inn.Linear(4, 1), inn.Sigmoid()))]).predict(X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_detect_probabilities(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(32, 10, generator=generator).to(dtype)
    for values, end in ((logits.softmax(1), "softmax"), (logits.log_softmax(1), "log-softmax")):
        with pytest.raises(ValueError, match=f"ends in a {end}"):
            check_logits(values, 10, "It")
        check_logits(values + 0.05, 10, "It")
        check_logits(
            values[:1].expand(32, -1), 10, "It"
        )  # the same in every row, as with a bias alone
    for scale in (1e-3, 1.0, 100.0):
        check_logits(scale * logits, 10, "It")
        check_logits(scale * logits.abs(), 10, "It")
        check_logits(
            (scale * logits[:, :1]).sigmoid(), 1, "It"
        )  # values alone do not prove a sigmoid


@pytest.mark.parametrize("frozen", [False, True])
def test_reference_class_logits_are_accepted(frozen):
    class Reference(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            return torch.cat([x.new_zeros(len(x), 1), self.fc(x)], 1)

    network = Reference().requires_grad_(not frozen)
    with torch.no_grad():  # the reference class is certain in the first 32 rows
        network.fc.weight.copy_(torch.tensor([[40.0, 0, 0, 0], [0, 40.0, 0, 0]]))
        network.fc.bias.fill_(-30)
    x = 0.1 * X + torch.eye(4)[Y - 1] * (Y > 0).unsqueeze(1)
    x, y = x[Y.argsort(stable=True)].repeat_interleave(2, 0), Y.sort().values.repeat_interleave(2)
    model = CreINN(network, distance=True, num_logits=3).fit_distance(x, y)
    assert (model.predict(x).label == y).double().mean() > 0.9


class Certain(nn.Module):
    """Log-probabilities that round to 0 for the first class of every row."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        with torch.no_grad():
            self.fc.bias.copy_(torch.tensor([200.0, 0.0, 0.0]))

    def forward(self, x):
        return self.fc(x).log_softmax(1)


class WithReference(Certain):
    """A first logit that is fixed, and two others that complete the probabilities."""

    def forward(self, x):
        reference = x.new_full((len(x), 1), -1.0)
        rest = math.log(1 - math.exp(-1)) + self.fc(x)[:, 1:].log_softmax(1)
        return torch.cat([reference, rest], 1)


@pytest.mark.parametrize("frozen", [False, True])
def test_detect_log_softmax(frozen):
    torch.manual_seed(0)
    model = CreINN(Certain().requires_grad_(not frozen), distance=True)
    with pytest.raises(ValueError, match="log-softmax"):
        model.fit_distance(X, Y)
    assert all(parameter.requires_grad != frozen for parameter in model.parameters())
    reference = WithReference().requires_grad_(not frozen)
    CreINN(reference, distance=True).check_network(X)


def test_handwritten_softmax_raises():
    def softmax(y):
        return y.exp() / y.exp().sum(1, keepdim=True)

    with pytest.raises(ValueError, match="softmax"):
        SNN(Ending(softmax)).predict(X)


AFTER_SOFTMAX = {
    "clone": lambda p: p.clone(),
    "cast": lambda p: p.double().float(),
    "transpose": lambda p: p.t().contiguous().t(),
    "concatenate": lambda p: torch.cat([p[:, :1], p[:, 1:]], 1),
    "index": lambda p: p[:, [2, 0, 1]],
    "clamp": lambda p: p.clamp(1e-7, 1),
}


@pytest.mark.parametrize("name", AFTER_SOFTMAX)
def test_detect_probabilities_after_other_operations(name):
    torch.manual_seed(0)
    network = Ending(lambda y: AFTER_SOFTMAX[name](y.softmax(1)))
    with pytest.raises(ValueError, match="softmax"):
        SNN(network).predict(X)


def test_inspection_does_not_change_network():
    torch.manual_seed(0)
    model = SNN(
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    ).train()
    before, state = (
        {name: value.clone() for name, value in model.state_dict().items()},
        torch.get_rng_state(),
    )
    model.check_network(X)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_dict_datasets():
    rows = [({"ids": ids, "numbers": x}, int(y)) for ids, x, y in zip(IDS, X, Y, strict=True)]

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(rows)

        def __getitem__(self, index):
            return rows[index]

    torch.manual_seed(0)
    network = Mixed(("ids", "numbers"))
    fit(SNN(network), Rows(), config=ONCE)
    loader = DataLoader(Rows(), batch_size=16)
    model = CreINN(network, distance=True).fit_distance(loader)
    torch.testing.assert_close(
        model.predict(loader).lower, model.predict({"ids": IDS, "numbers": X}).lower
    )
    with pytest.raises(TypeError, match="dict"):
        fit(creinn.baselines.FSVI(network), ({"ids": IDS, "numbers": X}, Y), config=ONCE)


def test_prediction_after_fit_distance_uses_distance():
    torch.manual_seed(0)
    model = CreINN(models.mlp(4, 3, layers=nn), distance=True).train().fit_distance(X, Y)
    noise = 50 * torch.randn(20, 4)
    assert not model.training
    assert model(noise).epistemic.mean() > 0.5
    torch.testing.assert_close(model(noise).epistemic, model.predict(noise).epistemic)
