"""Test that a calibration and a distance are only valid for the model that was fitted."""

import copy

import pytest
import torch

from creinn import CreINN, Ensemble, TrainConfig, fit, load, models
from creinn import compile as compiled
from creinn import nn as inn
from creinn.classifier import fitted_on
from creinn.credal.abstention import NoThresholdError
from distance_cases import blobs, ordinary

pytestmark = pytest.mark.filterwarnings("ignore:The distance is not used")


def interval_model(**options):
    torch.manual_seed(0)
    return CreINN.from_options(models.mlp(4, 3, hidden=(8,)), temperature=True, **options).eval()


def fitted(kind):
    """Return a model with a distance and a calibration."""
    model = ordinary() if kind == "ordinary" else interval_model(distance=True)
    return model.fit_distance(*blobs()).calibrate(*blobs(200, seed=5), coverage=0.9)


def train_by_hand(model):
    x, y = blobs(seed=7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    model.loss(model(x), y).backward()
    optimizer.step()
    model.eval()


def set_temperature(model):
    model.temperature.value = torch.tensor(3.0)


def load_others(model):
    torch.manual_seed(1)
    network = copy.deepcopy(model.network)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    inn.project_(network)
    model.network.load_state_dict(network.state_dict())


def replace_activation(model):
    path = next(
        path for path, part in model.network.named_modules() if type(part).__name__ == "ReLU"
    )
    model.network.set_submodule(path, (inn if model.is_interval else torch.nn).Tanh())


def refit_distance_scale(model):
    model.distance_radius.scale.mul_(2)


CHANGES = {
    "mode": (lambda model: setattr(model, "mode", "sound"), "mode"),
    "training loop": (train_by_hand, "weights"),
    "load_state_dict": (load_others, "weights"),
    "temperature": (set_temperature, "temperature"),
    "temperature off": (lambda model: setattr(model.temperature, "is_on", False), "temperature"),
    "structure": (replace_activation, "structure"),
    "distance": (refit_distance_scale, "distance"),
    "batch statistics": (lambda model: model.train()(blobs()[0]) and model.eval(), "weights"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["ordinary", "interval"])
def test_change_makes_calibration_stale(kind, change):
    if (kind, change) == ("ordinary", "batch statistics"):
        pytest.skip("has no batch norm")
    model, x = fitted(kind), blobs(10, seed=6)[0]
    model.predict(x)
    assert model.calibration_is_current
    CHANGES[change][0](model)
    assert not model.calibration_is_current
    with pytest.raises(RuntimeError, match=CHANGES[change][1]):
        model.predict(x).classes("conformal")


def test_scaled_radii_make_calibration_stale():
    model = interval_model().calibrate(*blobs(200, seed=5))
    inn.scale_radii_(model, 0.5)
    with pytest.raises(RuntimeError, match=r"weights.*calibrate"):
        model.predict(blobs()[0]).classes("conformal")
    assert model.predict(blobs()[0]).classes().shape == (300, 3)  # other rules remain
    model.calibrate(*blobs(200, seed=5))
    assert model.predict(blobs()[0]).classes("conformal").shape == (300, 3)


def test_calibration_after_write_to_data_is_current():
    x, y = blobs(200, seed=5)
    model = interval_model().calibrate(x, y)
    model.predict(x)
    model.network.head.weight.data.mul_(0.5)
    assert model.calibrate(x, y).calibration_is_current
    assert model.predict(x).classes("conformal").shape == (200, 3)


def test_change_of_widened_sets_raises():
    x, y = blobs(200, seed=5)
    model = interval_model()
    model.calibrate(x, torch.nn.functional.one_hot(y).double())
    inn.scale_radii_(model, 0.5)
    with pytest.raises(RuntimeError, match="weights"):
        model.predict(x).widened()


SAME = {
    "copy": copy.deepcopy,
    "double": lambda model: model.double(),
    "double and float": lambda model: model.double().float(),
    "device": lambda model: model.to("cpu"),
    "equal values": lambda model: model.load_state_dict(model.state_dict()) and model,
    "new parameters": lambda model: (
        model.load_state_dict(model.state_dict(), assign=True) and model
    ),
    "train and eval": lambda model: model.train().eval(),
    "no gradient": lambda model: model.requires_grad_(False),
    "compiled": lambda model: compiled(model, blobs(2)[0]),
}


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("kind", ["ordinary", "interval"])
def test_equal_values_preserve_guarantees(kind, change):
    model = fitted(kind)
    x = blobs(10, seed=6)[0]
    expected = model.predict(x).classes("conformal")
    model = SAME[change](model)
    assert model.calibration_is_current
    assert torch.equal(model.predict(x).classes("conformal"), expected)


class OwnNetwork(torch.nn.Module):
    """A network that is saved as a graph, and loaded as modules of other classes."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 8)
        self.activation = torch.nn.ReLU()
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.activation(self.body(x)) * 1.0)


def own_model():
    torch.manual_seed(0)
    model = CreINN(OwnNetwork(), distance=True).fit_distance(*blobs())
    return model.calibrate(*blobs(200, seed=5), coverage=0.9)


@pytest.mark.parametrize("kind", ["ordinary", "interval", "own", "ensemble"])
def test_saved_model_preserves_guarantees(kind, tmp_path):
    x = blobs(10, seed=6)[0]
    if kind == "ensemble":
        members = [ordinary(seed).fit_distance(*blobs()) for seed in range(2)]
        model = Ensemble(members).calibrate(*blobs(200, seed=5))
    else:
        model = own_model() if kind == "own" else fitted(kind)
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.calibration_is_current
    assert again.distance_is_current
    expected = model.predict(x).classes("conformal")
    assert torch.equal(again.predict(x).classes("conformal"), expected)


def test_stale_model_is_stale_after_loading(tmp_path):
    for change in (replace_activation, set_temperature):
        model = own_model()
        change(model)
        model.save(tmp_path)
        assert not load(tmp_path).calibration_is_current


def test_load_state_dict_of_calibrated_model():
    model, other = fitted("ordinary"), ordinary(seed=3)
    other.fit_distance(*blobs())
    other.load_state_dict(model.state_dict())
    assert other.calibration_is_current
    assert other.distance_is_current
    other.load_state_dict(ordinary(seed=4).fit_distance(*blobs()).state_dict())
    assert not other.calibration_is_current  # the state has none
    assert other.predict(blobs()[0]).conformal is None


@pytest.mark.parametrize(
    ("change", "part"),
    [(train_by_hand, "weights"), (load_others, "weights"), (replace_activation, "structure")],
)
@pytest.mark.parametrize("kind", ["ordinary", "interval"])
def test_stale_distance_raises(kind, change, part):
    model = fitted(kind)
    x, y = blobs()
    assert model.distance_is_current
    change(model)
    assert not model.distance_is_current
    for use in (model.predict, model, Ensemble([model]).predict, compiled):
        with pytest.raises(RuntimeError, match=rf"{part}.*fit_distance"):
            use(model if use is compiled else x)
    model.train()(x)  # the distance is not used in training
    model.eval().fit_distance(x, y)
    assert model.distance_is_current
    assert len(model.predict(x)) == 300


def test_stale_distance_raises_before_iteration():
    model, x = fitted("ordinary"), blobs(10)[0]
    model.predict(x)
    load_others(model)
    with pytest.raises(RuntimeError, match="weights"):
        model.predict_batches(x)


def test_mode_change_makes_distance_stale():
    model = fitted("interval")
    model.mode = "sound"
    with pytest.raises(RuntimeError, match="mode"):
        model.predict(blobs()[0])
    model.mode = "paper"
    assert model.distance_is_current
    assert model.calibration_is_current  # as it was
    model = fitted("ordinary")
    model.mode = "sound"  # features of points are the same
    assert model.distance_is_current


def test_changed_member_makes_ensemble_stale():
    x, y = blobs(200, seed=5)
    members = [interval_model(), interval_model()]
    ensemble = Ensemble(members).calibrate(x, y)
    assert ensemble.calibration_is_current
    ensemble.combine = "envelope"
    with pytest.raises(RuntimeError, match="combine"):
        ensemble.predict(x).classes("conformal")
    ensemble.combine = "average"
    assert ensemble.calibration_is_current
    inn.scale_radii_(members[1], 2.0)
    with pytest.raises(RuntimeError, match="weights"):
        ensemble.predict(x).classes("conformal")


def test_fit_replaces_distance_and_removes_calibration():
    model = fitted("ordinary")
    fit(model, blobs(), None, TrainConfig(epochs=1, progress=False))
    assert not model.calibration_is_current
    assert model.distance_is_current
    assert model.predict(blobs()[0]).conformal is None


def test_uncalibrated_models_are_not_current():
    model = interval_model()
    assert not model.calibration_is_current
    assert not model.distance_is_current
    assert not Ensemble([model]).distance_is_current


def test_contents_are_hashed_after_version_changes(monkeypatch):
    model = fitted("ordinary")
    x = blobs(10)[0]
    model.predict(x)
    calls = []
    digest = fitted_on.digest
    monkeypatch.setattr(
        fitted_on, "digest", lambda *values: calls.append(values) or digest(*values)
    )
    model.predict(x).classes("conformal")
    assert not calls
    with torch.no_grad():
        model.network.head.weight.mul_(1)
    model.predict(x).classes("conformal")
    assert len(calls) == 1


@pytest.mark.parametrize("is_ensemble", [False, True])
def test_failed_calibration_does_not_change_model(is_ensemble):
    x, y = blobs(200, seed=5)
    members = [fitted("ordinary"), fitted("ordinary")]
    model = Ensemble(members).calibrate(x, y) if is_ensemble else members[0]
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = model.predict(x).classes("conformal")
    with pytest.raises(ValueError, match="999"):
        model.calibrate(x, y, coverage=0.999)
    with pytest.raises(ValueError, match="margin"):
        model.calibrate(x, y, score="margin")
    with pytest.raises(NoThresholdError):
        model.calibrate(x, y, coverage=0.8, max_error=0.001)
    with pytest.raises(ValueError, match="target"):
        model.calibrate(x, torch.where(torch.arange(200) == 3, 7, y))
    with pytest.raises(ValueError, match="nan"):
        model.calibrate(x.index_fill(0, torch.tensor(2), torch.nan), y)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(part.training for part in model.modules())
    assert model.calibration_is_current
    assert all(member.calibration_is_current for member in members[: 2 if is_ensemble else 1])
    assert torch.equal(model.predict(x).classes("conformal"), expected)


def test_load_state_dict_of_fitted_model():
    model, x = fitted("ordinary"), blobs(20, seed=3)[0]
    other = ordinary()  # the feature layers of the model are not known
    other.load_state_dict(model.state_dict())
    assert other.eval().distance_is_current
    torch.testing.assert_close(other.predict(x).upper, model.predict(x).upper)


@torch.no_grad()
def scale_through_data(model):
    for parameter in model.network.parameters():
        parameter.data.mul_(3)


def test_clear_cache_detects_writes_through_data():
    model = fitted("ordinary")
    scale_through_data(model)
    model.clear_cache()
    assert not model.calibration_is_current
    assert not model.distance_is_current


def test_fit_after_write_through_data_is_current(tmp_path):
    model = fitted("ordinary")
    scale_through_data(model)
    model.fit_distance(*blobs()).calibrate(*blobs(200, seed=5))
    model.save(tmp_path)
    assert load(tmp_path).calibration_is_current
    assert load(tmp_path).distance_is_current


def test_ensemble_with_unknown_feature_layers_is_current():
    members = [ordinary(seed).fit_distance(*blobs()) for seed in (0, 1)]
    fitted_ensemble = Ensemble(members).calibrate(*blobs(200, seed=5))
    ensemble = Ensemble([ordinary(seed) for seed in (2, 3)])
    ensemble.load_state_dict(fitted_ensemble.state_dict())
    ensemble.eval().members[0].predict(blobs(5)[0])
    assert ensemble.calibration_is_current
    assert ensemble.predict(blobs(5)[0]).classes("conformal").shape == (5, 3)
