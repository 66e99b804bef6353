"""Tests of the members of an ensemble: seeds, initial weights, folders and interrupts."""

import torch

from creinn.baselines.snn import SNN
from creinn.training import TrainConfig
from creinn.training.data import Rows
from creinn.training.loop import fit_members


def linear() -> SNN:
    return SNN(torch.nn.Linear(3, 2))


def signs() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


def test_members_depend_on_the_seed():
    config = TrainConfig(epochs=2, progress=False, seed=5)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first, histories = fit_members(linear, 3, signs(), None, config)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(99)
    second, _ = fit_members(linear, 2, signs(), None, config)
    weights = [member.network.weight for member in first]
    assert len(histories) == len(first) == 3
    assert not torch.equal(weights[0], weights[1])
    for a, b in zip(first, second, strict=False):  # independent of the number of members
        assert torch.equal(a.network.weight, b.network.weight)
    other, _ = fit_members(linear, 1, signs(), None, TrainConfig(epochs=2, progress=False, seed=6))
    assert not torch.equal(other[0].network.weight, weights[0])


def test_members_start_from_different_weights():
    starts = []

    def looked_at() -> SNN:
        model = linear()
        starts.append(model.network.weight.detach().clone())
        return model

    fit_members(looked_at, 2, signs(), None, TrainConfig(epochs=1, progress=False))
    assert not torch.equal(*starts)


def test_members_have_separate_folders(tmp_path):
    fit_members(linear, 2, signs(), None, TrainConfig(epochs=1, progress=False, directory=tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["member-0", "member-1"]
    assert (tmp_path / "member-1" / "last.safetensors").is_file()


def test_interrupt_ends_ensemble_training(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Rows, "shuffled", interrupt)
    members, histories = fit_members(
        linear, 3, signs(), None, TrainConfig(epochs=1, progress=False)
    )
    assert len(members) == len(histories) == 1
    assert histories[0].interrupted
