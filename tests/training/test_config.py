"""TrainConfig: the paper's defaults, milestones, values that are refused, no torch needed."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import creinn.training.config as config_module
from creinn.training import TrainConfig


def test_defaults_match_paper():
    config = TrainConfig()
    assert (config.batch_size, config.learning_rate, config.gamma, config.keep) == (
        None,
        1e-3,
        0.1,
        "last",
    )
    assert config.device == "cpu"
    assert config.directory is None


def test_learning_rate_falls_at_milestones():
    config = TrainConfig(learning_rate=1.0, milestones=(80, 120), gamma=0.5)
    assert [config.learning_rate_at(e) for e in (0, 79, 80, 119, 120, 149)] == [
        1,
        1,
        0.5,
        0.5,
        0.25,
        0.25,
    ]


def test_lists_and_integers_are_converted():
    config = TrainConfig(milestones=[2, 5], class_weight=[1, 2], learning_rate=1)
    assert config.milestones == (2, 5)
    assert config.class_weight == (1.0, 2.0)
    assert dataclasses.replace(config, epochs=7).class_weight == (1.0, 2.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": -3}, "batch_size must be at least 1, got -3"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"workers": -1}, "workers must be at least 0"),
        ({"learning_rate": 0.0}, r"learning_rate must be a positive number, got 0\.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a positive number, got nan"),
        ({"gamma": float("inf")}, "gamma must be a positive number, got inf"),
        ({"keep": "first"}, "keep .*got 'first'"),
        ({"train": "centres"}, "train .*got 'centres'"),
        ({"milestones": (5, 5)}, r"milestones must increase, got \(5, 5\)"),
        ({"milestones": (0,)}, "each of milestones must be at least 1"),
        ({"class_weight": (1.0, 0.0)}, "each of class_weight must be a positive number"),
    ],
)
def test_values_out_of_range_raise(wrong, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 1.5}, r"epochs must be an integer, got 1\.5"),
        ({"epochs": True}, "epochs must be an integer, got True"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, got 'fast'"),
        ({"milestones": 80}, "milestones must be a sequence of numbers, got 80"),
        ({"class_weight": "equal"}, "class_weight must be a sequence of numbers, got 'equal'"),
        ({"progress": 1}, "progress .*bool"),
        ({"device": 0}, "device .*str"),
        ({"directory": 3}, "directory .*got 3"),
        ({"epoch": 3}, "unexpected keyword argument 'epoch'"),
    ],
)
def test_wrong_types_and_unknown_names_raise(wrong, message):
    with pytest.raises(TypeError, match=message):
        TrainConfig(**wrong)


def test_config_does_not_import_torch():
    path = Path(config_module.__file__)
    code = f"import runpy, sys; runpy.run_path({str(path)!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
