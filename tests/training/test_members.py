"""Members of an ensemble: they differ, and the seed decides them."""

import torch

from creinn.rivals import SNN
from creinn.training import TrainConfig, loop
from creinn.training.members import fit_members


def build() -> SNN:
    return SNN(torch.nn.Linear(3, 2))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


def test_members_differ_and_the_seed_decides_them():
    config = TrainConfig(epochs=2, progress=False, seed=5)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first, histories = fit_members(build, 3, data(), None, config)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(99)
    second, _ = fit_members(build, 2, data(), None, config)
    weights = [member.network.weight for member in first]
    assert len(histories) == len(first) == 3
    assert not torch.equal(weights[0], weights[1])
    for a, b in zip(first, second, strict=False):  # the number of members does not matter to each of them
        assert torch.equal(a.network.weight, b.network.weight)
    other, _ = fit_members(build, 1, data(), None, TrainConfig(epochs=2, progress=False, seed=6))
    assert not torch.equal(other[0].network.weight, weights[0])


def test_members_start_from_different_weights():
    starts = []

    def build_and_look() -> SNN:
        model = build()
        starts.append(model.network.weight.detach().clone())
        return model

    fit_members(build_and_look, 2, data(), None, TrainConfig(epochs=1, progress=False))
    assert not torch.equal(*starts)


def test_each_member_has_a_folder(tmp_path):
    fit_members(build, 2, data(), None, TrainConfig(epochs=1, progress=False, directory=tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["member-0", "member-1"]
    assert (tmp_path / "member-1" / "last.safetensors").is_file()


def test_interruption_ends_the_series(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_epoch", interrupt)
    members, histories = fit_members(build, 3, data(), None, TrainConfig(epochs=1, progress=False))
    assert len(members) == len(histories) == 1
    assert histories[0].interrupted
