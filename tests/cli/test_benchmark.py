"""``creinn benchmark``: every form beside the ordinary network, or a refusal."""

import pytest

from creinn.cli import main as cli


def test_every_form_is_timed_beside_the_ordinary_network(capsys):
    assert (
        cli.main(
            [
                "benchmark",
                "--network",
                "resnet8",
                "--size",
                "8",
                "--batches",
                "1,2",
                "--seconds",
                "0.01",
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 4
    assert [line.split()[-2] for line in lines if " SNN " in line] == ["1.00", "1.00"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--batches 1,0", "must be positive"),
        ("--seconds 0", "positive"),
    ],
)
def test_what_is_refused(options, message, capsys):
    assert cli.main(["benchmark", *options.split()]) == 1
    assert message in capsys.readouterr().err
