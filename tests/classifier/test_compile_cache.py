"""Test that the cache of compiled models does not change the sets and is invalidated by changes."""

import copy
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

import creinn
from creinn import CreINN, Ensemble, Interval, TrainConfig, models
from creinn import nn as inn
from creinn.classifier import compile_cache
from creinn.nn import relative

X = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 3


def trained(mode="paper", family=inn, width=16, **options):
    torch.manual_seed(0)
    behind = (family.Linear(width, 12), family.BatchNorm1d(12), family.ReLU(), family.Linear(12, 3))
    network = torch.nn.Sequential(
        family.Linear(5, width), family.BatchNorm1d(width), family.ReLU(), *behind
    )
    model = CreINN(network, mode=mode, **options)
    model(X)  # running statistics
    with torch.no_grad():
        model.network[0].weight.mul_(3)
    return model.fit_distance(X, Y) if "distance" in options else model.eval()


def form(model):
    entry = compile_cache._ENTRIES.get(model)
    return None if entry is None else entry.compiled


def warm(model, x=X):
    """The model, with its compiled form in the cache."""
    model.predict(x)
    assert form(model) is not None
    return model


def assert_plain(model, x=X, tolerance=1e-5):
    """Its prediction is that of the model itself."""
    with torch.no_grad():
        got, expected = (
            model.predict(x),
            copy.deepcopy(model).eval()(x.to(next(model.parameters()).dtype)),
        )
    assert got.lower.dtype == expected.lower.dtype
    for bound in ("lower", "upper"):
        torch.testing.assert_close(
            getattr(got, bound), getattr(expected, bound), rtol=0, atol=tolerance
        )
    return got


MODELS = {
    **{mode: lambda mode=mode: trained(mode) for mode in ("paper", "scaled", "sound")},
    "relative": lambda: trained(family=relative),
    "distance": lambda: trained(distance=0.5),
    "creinn-d": lambda: trained(family=torch.nn, distance=0.5),
    "ensemble": lambda: Ensemble([trained(), trained(width=8)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_points_then_intervals(name):
    model = warm(MODELS[name]())
    assert_plain(model)
    assert_plain(model, X[:1])
    if name != "creinn-d":
        for x in (Interval(X - 0.1, X + 0.1), Interval(X.abs(), X.abs() + 0.1)):
            assert assert_plain(model, x).width.mean() > 1e-4
    assert form(model) is not None


def images(x):
    model = CreINN(models.resnet18(3, "imagenet", width=4))
    inn.scale_radii_(model, 0.1)
    for _ in range(20):
        model(x)
    return model.eval()


def test_image_sizes():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 16, 16)
    model = images(x).double()
    warm(model, Interval(x - 0.1, x + 0.1))
    for other in (x, torch.randn(2, 3, 8, 8)):
        assert assert_plain(model, other).lower.std(0).max() > 1e-4
    assert form(model) is not None


def by_optimizer(model, optimizer=torch.optim.Adam):
    model.train()
    optimizer = optimizer(model.parameters(), 0.1)
    model.loss(model(X), Y).backward()
    optimizer.step()
    model.eval()


def by_optimizer_in_eval_mode(model):
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    model.loss(model(X), Y).backward()
    optimizer.step()


def by_data(model):
    model.network[0].weight.data.mul_(0.5)
    model.clear_cache()


def by_other_data(model):
    model.network[0].weight.data = 0.5 * model.network[0].weight.data


@torch.no_grad()
def by_writing(model):
    model.network[0].weight_radius.mul_(2)


def by_inference_mode(model):
    with torch.inference_mode():
        model.network[0].weight.mul_(2)


def by_state(model):
    state = {
        name: 0.5 * t if t.is_floating_point() else t for name, t in model.state_dict().items()
    }
    model.load_state_dict(state)


def by_a_buffer(model):
    next(model.network[1].buffers()).add_(0.5)


def by_mode(model):
    for layer in model.modules():
        if isinstance(layer, inn.BatchNorm1d):
            layer.set_mode("scaled")


def by_an_option(model):
    model.network[1].eps = 0.5


def by_a_layer(model):
    model.network[2] = inn.GELU().eval()


def by_a_known_layer(model):
    model.network.append(model.network[2])


def by_mode_of_the_model(model):
    model.mode = "sound"


def by_fit(model):
    creinn.fit(
        model,
        (X, Y),
        config=TrainConfig(epochs=2, batch_size=16, learning_rate=0.1, progress=False),
    )


def by_dtype(model):
    model.to(torch.float64)


def by_fit_distance(model):
    model.fit_distance(3 * X, Y)


CHANGES = [
    by_fit,
    by_dtype,
    by_fit_distance,
    by_optimizer,
    by_optimizer_in_eval_mode,
    by_data,
    by_other_data,
    by_writing,
    by_inference_mode,
    by_state,
    by_a_buffer,
    by_mode,
    by_mode_of_the_model,
    by_an_option,
    by_a_layer,
    by_a_known_layer,
]


@pytest.mark.parametrize("change", CHANGES)
def test_weight_change_invalidates(change):
    model = trained(distance=0.5) if change is by_fit_distance else trained()
    before = warm(model).predict(X)
    change(model)
    after = assert_plain(model)
    assert (after.lower - before.lower).abs().max() > (
        0 if after.lower.dtype == torch.float64 else 1e-4
    )
    assert form(model) is not None


def test_change_of_ensemble_member_invalidates():
    first, second = trained(), trained(width=8)
    model = warm(Ensemble([first, second]))
    before = model.predict(X)
    model.members.append(second)
    after = assert_plain(model)
    assert (after.lower - before.lower).abs().max() > 1e-3


def test_clear_cache_of_shared_modules():
    member, other = trained(), warm(trained())
    model = warm(Ensemble([member, trained()]))
    warm(member).network[0].weight.data.mul_(0.5)
    member.clear_cache()
    assert (form(member), form(model)) == (None, None)
    assert form(other) is not None
    assert_plain(model)


def test_calibration_does_not_invalidate():
    model = trained()
    model.calibrate(X, Y, coverage=0.8)
    compiled = form(model)
    assert model.predict(X).classes("conformal").shape == (40, 3)
    assert form(model) is compiled is not None
    prediction = model.predict(X)
    assert form(model.calibrate_predictions(prediction, Y, max_error=0.9)) is compiled
    assert model.predict(X).accepted.shape == (40,)
    assert form(model) is compiled


def test_first_call_compiles(tmp_path):
    model = trained()
    model.save(tmp_path)
    for new in (model, creinn.load(tmp_path), copy.deepcopy(model)):
        first = new.predict(X)
        compiled = form(new)
        assert compiled is not None
        assert torch.equal(new.predict(X).lower, first.lower)
        assert form(new) is compiled


def test_training_mode_is_not_compiled():
    model = warm(trained())
    model.train()
    assert form(model) is None
    assert_plain(model)
    assert form(model) is None
    assert model.training
    assert warm(model.eval()).double() not in compile_cache._ENTRIES


def test_fit_does_not_compile(monkeypatch):
    model, calls = warm(trained()), []
    monkeypatch.setattr(compile_cache, "compiled_form", lambda *_: calls.append(0))
    config = TrainConfig(epochs=2, batch_size=16, progress=False, keep="best", patience=5)
    creinn.fit(model, (X, Y), (X, Y), config)
    assert calls == []
    assert model not in compile_cache._ENTRIES


def test_stream_compiles_and_detects_changes():
    model, forms = trained(), []
    for prediction in model.predict_batches(X, batch_size=8):
        forms.append(form(model) is not None)
        with torch.no_grad():
            torch.testing.assert_close(
                prediction.lower, model(X).lower[8 * len(forms) - 8 : 8 * len(forms)]
            )
            if len(forms) == 3:
                by_writing(model)
    assert forms == [True] * 5


def test_invalid_inputs_do_not_prevent_compilation():
    model = trained()
    by_fit(model)
    with pytest.raises(ValueError, match="expects 5 features"):
        model.predict(torch.zeros(4, 6))
    model.predict(X)
    assert form(model) is not None


def test_copies_and_files_do_not_contain_cache(tmp_path):
    plain, model = trained(), warm(trained())
    plain.predict(X)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert len(pickle.dumps(model)) == len(pickle.dumps(plain))
    twin = copy.deepcopy(model)
    assert twin not in compile_cache._ENTRIES
    by_writing(twin)
    assert_plain(twin)
    assert form(model) is not None
    model.save(tmp_path)
    assert form(model) is not None
    assert_plain(warm(creinn.load(tmp_path)))


def test_cache_is_freed_with_model():
    model = trained()
    model.network[2].owner = [model]
    warm(model)
    inside = weakref.ref(form(model))
    del model
    gc.collect()
    assert inside() is None


@torch.no_grad()
def test_disable_cache():
    model = warm(trained())
    model.uses_compile_cache = False
    for _ in range(3):
        assert_plain(model)
    assert model not in compile_cache._ENTRIES


@pytest.mark.parametrize("is_global", [False, True])
def test_hooks_are_called(is_global):
    model, calls = warm(trained()), []
    register = register_module_forward_hook if is_global else model.network[0].register_forward_hook
    handle = register(lambda module, *_: calls.append(module))
    try:
        for _ in range(3):
            model.predict(X)
    finally:
        handle.remove()
    assert calls.count(model.network[0]) == 3
    warm(model)


def test_replaced_forward_is_called():
    model = warm(trained())
    forward = model.network.forward
    model.network.forward = lambda x: forward(2 * x)
    for _ in range(3):
        assert (model.predict(X).lower - trained().predict(X).lower).abs().max() > 1e-3


def test_user_subclasses_are_not_compiled():
    class Twice(CreINN):
        def forward(self, x):
            return super().forward(2 * x)

    torch.manual_seed(0)
    model = Twice(models.mlp(5, 3)).eval()
    for _ in range(3):
        assert_plain(model)
    assert form(model) is None


def test_inference_mode_weights_are_not_compiled():
    with torch.inference_mode():
        layer = torch.nn.Linear(5, 3).eval()
        for _ in range(3):
            assert compile_cache.compiled_form(layer, X, copy.deepcopy) is None
    assert layer not in compile_cache._ENTRIES


def test_predict_inside_and_outside_inference_mode():
    model = trained()
    with torch.inference_mode():
        warm(model)
    assert_plain(model)


def test_failed_compilation_is_not_repeated():
    tried, layer = [], torch.nn.Linear(5, 3).eval()
    for count in (1, 2):
        for _ in range(3):
            assert compile_cache.compiled_form(layer, X, lambda *_: tried.append(0)) is None
        assert len(tried) == count
        layer.bias = torch.nn.Parameter(torch.zeros(3))


def test_other_compilation_errors_propagate(monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("creinn.graph.compile.fold", fail)
    with pytest.raises(ZeroDivisionError):
        trained().predict(X)


def test_compiled_forward_errors_propagate():
    model = warm(trained())
    form(model).forward = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        model.predict(X)


def test_threads_compile_once():
    model, built, barrier = trained().network, [], threading.Barrier(8)

    def build(module, x):
        built.append(0)
        return copy.deepcopy(module)

    def look_up(_):
        barrier.wait()
        return compile_cache.compiled_form(model, X, build)

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(look_up, range(8)))
    assert (len(found), len(built)) == (1, 1)


def test_first_prediction_runs_network_once():
    calls = []

    class Counted(torch.nn.Sequential):
        def forward(self, x):
            calls.append(isinstance(x, Interval))
            return super().forward(x)

    model = CreINN(Counted(*trained().network)).eval()
    model.predict(X)
    model.predict(X)
    assert sum(calls) == 1  # other calls trace


def test_unknown_modules_are_not_compiled():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = inn.Linear(5, 3)

        def forward(self, x):
            return self.layer(x) if x.sum().lower > 0 else self.layer(-x)

    class Ordinary(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = torch.nn.GRU(5, 4, batch_first=True), torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.rnn(x.unsqueeze(1))[0][:, 0])

    torch.manual_seed(0)
    for model in (CreINN(Own()).eval(), CreINN(Ordinary(), distance=1.0).fit_distance(X, Y)):
        for _ in range(3):
            assert_plain(model)
        assert form(model) is None


def test_errors_and_vacuous_rows():
    model, plain = warm(trained()), trained()
    plain.uses_compile_cache = False
    plain.predict(X)
    for wrong in (torch.zeros(4, 6), torch.zeros(5), torch.zeros(2, 3, 5, 2)):
        for either in (plain, model):
            with pytest.raises(ValueError, match=r"inputs|features"):
                either.predict(wrong)
    gaps = X.clone()
    gaps[1, 2] = torch.nan
    with pytest.raises(ValueError, match="row 1 of the inputs holds nan"):
        model.predict(gaps)
    sets = model.predict(gaps, missing="vacuous")
    assert sets.lower[1].tolist() == [0.0] * 3
    assert sets.upper[1].tolist() == [1.0] * 3
    torch.testing.assert_close(sets.lower[2:], plain.predict(X).lower[2:])
    huge = X.clone()
    huge[3] = 3e38
    assert (
        model.predict(huge).upper[3].tolist() == plain.predict(huge).upper[3].tolist() == [1.0] * 3
    )
    assert form(model) is not None
