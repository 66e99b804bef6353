"""Tests of the export of networks with unknown layers."""

import onnxruntime
import pytest
import torch
from torch import nn

from creinn import CreINN
from creinn.graph.export import export


class GroupNormed(nn.Module):
    shape = (1, 6, 6)

    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.fc = (
            nn.Conv2d(1, 4, 3),
            nn.GroupNorm(2, 4),
            nn.Linear(4, 3),
        )

    def forward(self, x):
        return self.fc(self.norm(self.convolution(x)).relu().mean((2, 3)))


class Attention(nn.Module):
    """Self-attention and layer norms."""

    shape = (5, 4)

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.encoder(self.first(x)).mean(1))


class Recurrent(nn.Module):
    """Network with a sequence and a mask as inputs."""

    shape = (5, 4)

    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, values, mask):
        return self.fc((self.lstm(values)[0] * mask.unsqueeze(2)).sum(1))


class Inverse(nn.Module):
    """A network with an operation that is not supported by ONNX."""

    def forward(self, x):
        return torch.linalg.svdvals(x.unsqueeze(1)) + x


class Branch(nn.Module):
    """Control flow that depends on the values."""

    def forward(self, x):
        return x if x.sum() > 0 else -x


def fitted(network, shape):
    x = torch.randn(90, *shape, generator=torch.Generator().manual_seed(0))
    if isinstance(network, Recurrent):
        x = {"values": x, "mask": torch.arange(5).lt(3).expand(90, 5).long()}
    y = torch.arange(90) % 3
    return CreINN(network, distance=0.05).fit_distance(x, y), x


@pytest.mark.parametrize("kind", [GroupNormed, Attention, Recurrent])
def test_layers_without_an_interval_version_are_exported(tmp_path, kind):
    torch.manual_seed(0)
    model, x = fitted(kind(), kind.shape)
    named = x if isinstance(x, dict) else {"x": x}
    named = {name: part[:7].clone() for name, part in named.items()}
    next(iter(named.values()))[3:] *= 4  # far from the others
    x = named if isinstance(x, dict) else named["x"]
    export(model, tmp_path / "model.onnx", x)
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    lower, upper = session.run(
        ["lower", "upper"], {name: part.numpy() for name, part in named.items()}
    )
    expected = model.predict(x)
    assert expected.width.max() > 0.01
    torch.testing.assert_close(torch.from_numpy(lower), expected.lower, atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.from_numpy(upper), expected.upper, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("middle", "ending", "token"), [(Inverse, "onnx", "svd"), (Branch, "pt2", "export")]
)
def test_network_that_cannot_be_exported_raises(tmp_path, middle, ending, token):
    model, _ = fitted(nn.Sequential(nn.Linear(4, 8), middle(), nn.Linear(8, 3)), (4,))
    with pytest.raises(ValueError, match=token):
        export(model, tmp_path / f"model.{ending}")
    assert not list(tmp_path.iterdir())
