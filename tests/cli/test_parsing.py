"""Options from the command line and from files: every kind, which goes first, and what is refused."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml

from creinn.cli.parsing import POSITIONAL, UsageError, command_line, options_yaml, parse_options


@dataclass(frozen=True, kw_only=True)
class Options:
    """Do something.

    More of it.
    """

    data: Path | None = field(default=None, metadata=POSITIONAL)
    out: Path
    target: str | None = None
    batch_size: int = 32
    rate: float = 0.5
    hidden: tuple[int, ...] = (64, 64)
    drop: tuple[str, ...] = ()
    rule: Literal["a", "b"] = "a"
    progress: bool = True
    scale: bool | float | None = None
    from_: Path | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}.")


HELPS = {
    "data": "What to do it with: 100%.",
    "out": "Where it goes.",
    "batch_size": "Rows.",
    "from": "Where to begin.",
}


def parse(*arguments: str) -> Options:
    return parse_options(Options, "creinn it", arguments, HELPS)


def test_defaults_and_every_kind_of_option():
    assert parse("--out", "m") == Options(out=Path("m"))
    found = parse(
        *(
            "d.csv",
            "--out=m",
            "--batch-size",
            "3",
            "--rate",
            "1",
            "--hidden",
            "5,6",
            "--drop",
            "id, 7,true",
        ),
        *("--rule", "b", "--no-progress", "--target", "12"),
    )
    assert found == Options(
        data=Path("d.csv"),
        out=Path("m"),
        target="12",
        batch_size=3,
        rate=1.0,
        hidden=(5, 6),
        drop=("id", "7", "true"),
        rule="b",
        progress=False,
    )
    assert isinstance(found.rate, float)


@pytest.mark.parametrize(
    "target", ["1", "1.50", "true", "null", "yes", "a: b", "[x", "2020-01-01", "#1"]
)
def test_texts_are_taken_as_they_are(target):
    assert parse("--out", "m", "--target", target).target == target
    assert parse("--out", "m", f"--drop={target}").drop == (target,)


def test_underscores_do_as_well():
    assert parse("--out", "m", "--batch_size=4").batch_size == 4


def test_underscore_at_the_end_of_a_field_is_no_part_of_the_option(tmp_path, capsys):
    assert parse("--out", "m", "--from", "here").from_ == Path("here")
    text = options_yaml("it", Options(out=Path("m"), from_=Path("here")))
    assert yaml.safe_load(text)["from"] == "here"
    (tmp_path / "o.yaml").write_text(text)
    assert parse("--config", str(tmp_path / "o.yaml")).from_ == Path("here")
    with pytest.raises(SystemExit):
        parse("--help")
    assert "--from FROM Where to begin. (type: Path" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "scale"),
    [([], True), (["0.5"], 0.5), (["2"], 2.0), (["true"], True), (["false"], False)],
)
def test_numbers_that_may_be_truth_values(arguments, scale):
    for found in (
        parse("--scale", *arguments, "--out", "m"),
        parse("--out", "m", "--scale", *arguments),
    ):
        assert found.scale == scale
        assert type(found.scale) is type(scale)


def test_file_gives_any_option_and_the_command_line_goes_before_it(tmp_path):
    path = tmp_path / "o.yaml"
    path.write_text("data: d.csv\nout: m\nbatch_size: 7\nhidden: [1]\nprogress: false\ndrop: [a]\n")
    expected = Options(
        data=Path("d.csv"), out=Path("m"), batch_size=7, hidden=(1,), progress=False, drop=("a",)
    )
    assert parse("--config", str(path)) == expected
    # in either order
    assert parse("--batch-size", "8", "other.csv", "--config", str(path), "--progress") == Options(
        data=Path("other.csv"), out=Path("m"), batch_size=8, hidden=(1,), drop=("a",)
    )


def test_resolved_options_can_be_used_again(tmp_path):
    options = Options(data=Path("d.csv"), out=Path("m"), target="1", hidden=(3,), drop=("a b", "2"))
    text = options_yaml("it", options)
    assert text.startswith("# creinn ")
    assert yaml.safe_load(text)["hidden"] == [3]
    (tmp_path / "o.yaml").write_text(text)
    assert parse("--config", str(tmp_path / "o.yaml")) == options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"missing: --out"),
        (["--out"], r"--out: expected one argument"),
        (["--out", "m", "--foo", "3"], r"unrecognized arguments: --foo"),
        (["--out", "m", "--batch", "3"], r"unrecognized arguments: --batch"),
        (["--out", "m", "a", "b"], r"unrecognized arguments: b"),
        (["--out", "m", "--batch-size", "x"], r"--batch-size: expected int. Got value: x"),
        (
            ["--out", "m", "--scale", "wide"],
            r"--scale: expected bool or float or null. Got value: wide",
        ),
        (["--out", "m", "--hidden", "3,x"], r"--hidden: expected int. Got value: x"),
        (["--out", "m", "--rule", "c"], r"--rule: .*c"),
        (["--out", "m", "--batch-size", "0"], r"batch_size must be at least 1, got 0"),
        (
            ["--out", "m", "--config", "absent.yaml"],
            r"--config: File does not exist: .*absent\.yaml",
        ),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message) as caught:
        parse(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out: m\nbatchsize: 3\n", r"'batchsize' is not accepted"),
        ("out: m\nbatch_size: many\n", r"--batch-size: expected int. Got value: many"),
        ("out: [\n", r"Problems parsing config"),
    ],
)
def test_files_that_are_refused(tmp_path, text, message):
    path = tmp_path / "o.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        parse("--config", str(path))


def test_required_positional():
    @dataclass(frozen=True, kw_only=True)
    class Needs:
        """Needs a model."""

        model: Path = field(metadata=POSITIONAL)

    assert parse_options(Needs, "creinn it", ["m"]).model == Path("m")
    with pytest.raises(UsageError, match="missing: MODEL"):
        parse_options(Needs, "creinn it", [])


def test_help_says_what_the_docstring_and_the_texts_say(capsys):
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Do something. More of it." in text
    assert "What to do it with: 100%. (type: Path)" in text
    assert "Where it goes. (required, type: Path)" in text
    assert "--batch-size BATCH_SIZE Rows. (type: int, default: 32)" in text


def test_command_line_gives_the_same_options():
    given = [
        "a b.csv",
        "--out",
        "o",
        "--hidden",
        "5,6",
        "--drop",
        "x,y z",
        "--no-progress",
        "--from",
        "f",
        "--scale",
        "2.0",
    ]
    options = parse_options(Options, "p", given)
    line = command_line("do", options)
    expected = (
        "creinn do 'a b.csv' --out o --hidden 5,6 --drop 'x,y z' --no-progress --scale 2.0 --from f"
    )
    assert line == expected
    assert parse_options(Options, "p", shlex.split(line)[2:]) == options
    assert (
        command_line("do", parse_options(Options, "p", ["--out", "o"]), leave_out=["out"])
        == "creinn do"
    )
