"""Convolutions for small images equal those of torch."""

import pytest
import torch

from experiments.small_images import Conv2d, use_small_image_convolutions

CASES = {
    "3x3 on one pixel": ({"kernel_size": 3, "padding": 1}, 1),
    "3x3 to one pixel": ({"kernel_size": 3, "padding": 1, "stride": 2}, 2),
    "1x1": ({"kernel_size": 1}, 4),
    "1x1 with stride": ({"kernel_size": 1, "stride": 2, "bias": False}, 5),
    "1x1 with padding": ({"kernel_size": 1, "padding": 1}, 3),
    "3x3": ({"kernel_size": 3, "padding": 1}, 4),
    "groups": ({"kernel_size": 1, "groups": 2}, 4),
}


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_outputs_and_gradients_are_those_of_torch(case):
    options, size = CASES[case]
    torch.manual_seed(0)
    plain = torch.nn.Conv2d(4, 6, **options).double()
    fast = Conv2d(4, 6, **options).double()
    fast.load_state_dict(plain.state_dict())
    use_small_image_convolutions(fast)
    x = torch.randn(3, 4, size, size, dtype=torch.float64)
    outputs, gradients = [], []
    for layer in (plain, fast):
        image = x.clone().requires_grad_()
        y = layer(image)
        y.square().sum().backward()
        outputs.append(y)
        gradients.append((image.grad, *(p.grad for p in layer.parameters())))
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*gradients)


def test_only_ordinary_convolutions_change():
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3), torch.nn.Linear(1, 1))
    use_small_image_convolutions(network)
    assert [type(layer) for layer in network] == [Conv2d, torch.nn.Linear]
