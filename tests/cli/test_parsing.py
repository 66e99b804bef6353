"""Tests of the options on the command line and in files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import yaml

from creinn.cli.parsing import UsageError, option, options_yaml, parse_options, setting


@dataclass(frozen=True, kw_only=True)
class Options:
    """Do something.

    More of it.
    """

    data: Path | None = option(None, "data", "Input: 100%.", positional=True)
    target: str | None = option(None, "data")
    drop: tuple[str, ...] = option((), "data")
    hidden: tuple[int, ...] = option((64, 64), "method")
    rule: Literal["a", "b"] = option("a", "method")
    from_: Path | None = option(None, "method", "Start.")
    batch_size: int = option(32, "training", "Rows.")
    ood: tuple[str, ...] = option((), "data", repeated=True)
    out: Path = option()
    progress: bool = option(True)
    scale: bool | float | None = setting(None, "Scale.")
    rate: float = setting(0.5, "Learning rate.")
    steps: tuple[int, ...] = setting((), "Milestones.")
    comment: str = setting("", "Comment mark.")
    strict: bool = setting(False, "Strictness.")
    width: int | None = setting(None, "Width.")

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}.")


def parse(*arguments: str) -> Options:
    return parse_options(Options, "creinn it", arguments)


def test_defaults_and_all_types():
    assert parse("--out", "m") == Options(out=Path("m"))
    line = "d.csv --out=m --batch-size 3 --hidden 5,6 --rule b --no-progress --target 12"
    settings = "--set rate=1 --set steps=5,8 --set comment=# --set strict=true --set width=2"
    found = parse(*line.split(), *settings.split(), "--drop", "id, 7,true")
    assert found == Options(
        data=Path("d.csv"),
        out=Path("m"),
        target="12",
        batch_size=3,
        hidden=(5, 6),
        drop=("id", "7", "true"),
        rule="b",
        progress=False,
        rate=1.0,
        steps=(5, 8),
        comment="#",
        strict=True,
        width=2,
    )
    assert isinstance(found.rate, float)


@pytest.mark.parametrize(
    "text", ["1", "1.50", "true", "null", "yes", "a: b", "[x", "2020-01-01", "#1", "a=b"]
)
def test_strings_are_not_parsed(text):
    assert parse("--out", "m", "--target", text).target == text
    assert parse("--out", "m", f"--drop={text}").drop == (text,)
    assert parse("--out", "m", "--set", f"comment={text}").comment == text


@pytest.mark.parametrize(
    ("text", "scale"), [("0.5", 0.5), ("2", 2.0), ("true", True), ("false", False)]
)
def test_numbers_or_booleans(text, scale):
    found = parse("--out", "m", "--set", f"scale={text}").scale
    assert found == scale
    assert type(found) is type(scale)


def test_repeated_options(tmp_path):
    assert parse("--out", "m", "--ood", "a,b", "--ood", "near=c").ood == ("a,b", "near=c")
    path = tmp_path / "o.yaml"
    path.write_text(options_yaml("it", parse("--out", "m", "--ood", "a,b", "--ood", "c")))
    assert parse("--config", str(path)).ood == ("a,b", "c")
    assert parse("--config", str(path), "--ood", "d").ood == ("a,b", "c", "d")


def test_command_line_overrides_file_in_either_order(tmp_path):
    path = tmp_path / "o.yaml"
    path.write_text("data: d.csv\nout: m\nbatch_size: 7\nhidden: [1]\nrate: 0.1\nwidth: 4\n")
    expected = {"out": Path("m"), "hidden": (1,), "width": 4}
    assert parse("--config", str(path)) == Options(
        data=Path("d.csv"), batch_size=7, rate=0.1, **expected
    )
    given = ("--batch-size", "8", "other.csv", "--set", "rate=0.2")
    for order in ((*given, "--config", str(path)), ("--config", str(path), *given)):
        assert parse(*order) == Options(data=Path("other.csv"), batch_size=8, rate=0.2, **expected)


def test_options_round_trip(tmp_path):
    options = Options(
        data=Path("d.csv"),
        out=Path("m"),
        target="1",
        hidden=(3,),
        drop=("a b", "2", "c,d"),
        from_=Path("here"),
        rate=0.1,
        comment="#",
    )
    text = options_yaml("it", options)
    assert text.startswith("# creinn ")
    assert yaml.safe_load(text)["from"] == "here"
    assert yaml.safe_load(text)["rate"] == 0.1
    (tmp_path / "o.yaml").write_text(text)
    assert parse("--config", str(tmp_path / "o.yaml")) == options


@pytest.mark.parametrize(
    ("arguments", "token"),
    [
        ([], "out"),
        (["--out"], "--out"),
        (["--out", "m", "--foo", "3"], "--foo"),
        (["--out", "m", "--batch", "3"], "--batch"),
        (["--out", "m", "a", "b"], "b"),
        (["--out", "m", "--batch-size", "x"], "batch_size"),
        (["--out", "m", "--set", "scale=wide"], "scale"),
        (["--out", "m", "--hidden", "3,x"], "hidden"),
        (["--out", "m", "--set", "steps=3,x"], "steps"),
        (["--out", "m", "--rule", "c"], "rule"),
        (["--out", "m", "--batch-size", "0"], "batch_size"),
        (["--out", "m", "--config", "absent.yaml"], r"absent\.yaml"),
        (["--out", "m", "--set", "speed=1"], "speed"),
        (["--out", "m", "--set", "comment"], "NAME=VALUE"),
        (["--out", "m", "--set", "rate=fast"], "rate"),
        (["--out", "m", "--set", "strict=perhaps"], "strict"),
    ],
)
def test_errors(arguments, token):
    with pytest.raises(UsageError, match=token):
        parse(*arguments)


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("out: m\nbatchsize: 3\n", "batchsize"),
        ("out: m\nbatch_size: many\n", "batch_size"),
        ("out: m\nhidden: [1.5]\n", "hidden"),
        ("out: m\ntarget: 3\n", "target"),
        ("out: [\n", "parsing"),
        ("out\n", "config"),
    ],
)
def test_errors_in_files(tmp_path, text, token):
    path = tmp_path / "o.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=token):
        parse("--config", str(path))


def test_null_in_file_is_default(tmp_path):
    path = tmp_path / "o.yaml"
    path.write_text("out: m\nbatch_size: null\n")
    assert parse("--config", str(path)).batch_size == 32


def test_required_positional():
    @dataclass(frozen=True, kw_only=True)
    class Needs:
        """Require a model."""

        model: Path = option(positional=True)

    assert parse_options(Needs, "creinn it", ["m"]).model == Path("m")
    with pytest.raises(UsageError, match="model"):
        parse_options(Needs, "creinn it", [])


def test_help_has_groups_defaults_and_settings(capsys):
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for part in ("\ndata:\n", "\nmethod:\n", "\ntraining:\n", "\noutput:\n", "\n  rate\n"):
        assert part in text
    words = " ".join(text.split())
    assert "Do something. More of it." in words
    assert "data Input: 100%." in words
    assert "--batch-size BATCH_SIZE Rows. (default: 32)" in words
    assert "rate Learning rate. (default: 0.5)" in words
    assert "--rate" not in words  # a setting, not an option
