"""Tables of scikit-learn as CSV files, trained models, and a fixture for the command line."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import train_test_split

from creinn.cli.main import main

QUICK = ("--hidden", "16", "--epochs", "30", "--set", "learning_rate=0.01")


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Run:
    """Call of the command line, where words of a string are separate arguments."""

    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> Done:
        words = [a.split() if isinstance(a, str) else [str(a)] for a in arguments]
        return Done(main(list(chain(*words))), *self.capture.readouterr())

    def ok(self, *arguments: object) -> Done:
        """Require success."""
        done = self(*arguments)
        assert done.code == 0, done.err
        return done

    def error(self, *arguments: object) -> str:
        """Require exit code 1, and return the message."""
        done = self(*arguments)
        assert done.code == 1, done.out
        return done.err


@pytest.fixture
def run(capsys, tmp_path, monkeypatch) -> Run:
    """Run commands in the temporary directory."""
    monkeypatch.chdir(tmp_path)
    return Run(capsys)


def write_tables(folder: Path, name: str, load: Callable[..., object]) -> tuple[Path, Path]:
    data = load(as_frame=True)
    frame = data.data.assign(kind=data.target_names[data.target])
    train, test = train_test_split(frame, stratify=frame.kind, test_size=0.3, random_state=0)
    paths = folder / f"{name}.csv", folder / f"{name}-test.csv"
    train.to_csv(paths[0], index=False)
    test.to_csv(paths[1], index=False)
    return paths


@pytest.fixture(scope="session")
def wine(tmp_path_factory) -> tuple[Path, Path]:
    return write_tables(tmp_path_factory.mktemp("wine"), "wine", load_wine)


@pytest.fixture(scope="session")
def breast_cancer(tmp_path_factory) -> tuple[Path, Path]:
    return write_tables(tmp_path_factory.mktemp("cancer"), "cancer", load_breast_cancer)


@pytest.fixture(scope="session")
def train_wine(wine, tmp_path_factory) -> Callable[..., Path]:
    def train(name: str, *options: str) -> Path:
        out = tmp_path_factory.mktemp("models") / name
        target = ["--target", "kind", *QUICK, *options]
        assert main(["train", str(wine[0]), "--out", str(out), *target]) == 0
        return out

    return train


@pytest.fixture(scope="session")
def model(train_wine) -> Path:
    """A CreINN-D for the wines, the default."""
    return train_wine("wine")


@pytest.fixture(scope="session")
def interval_model(train_wine) -> Path:
    """A CreINN of the paper's form for the wines."""
    return train_wine("interval", "--method", "creinn")


@pytest.fixture(scope="session")
def ordinary(train_wine) -> Path:
    """An ordinary network for the wines."""
    return train_wine("ordinary", "--method", "snn")


@pytest.fixture(scope="session")
def foreign(wine, tmp_path_factory) -> Path:
    """Rows without labels that are far from all training data."""
    path = tmp_path_factory.mktemp("foreign") / "foreign.csv"
    frame = pd.read_csv(wine[1]).drop(columns="kind")
    (frame.mean() + 20 * frame.std() + frame).to_csv(path, index=False)
    return path
