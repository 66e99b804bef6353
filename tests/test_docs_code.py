"""Run the code of the documentation.

The Python blocks of a page run in order in one directory. Blocks with ``>>>`` are doctests.
``<!-- setup ... -->`` contains Python code that is not shown on the page. A block below
``<!-- not run: reason -->`` must compile. Shell commands must parse with all options, and those
below ``<!-- run -->`` are run.
"""

import doctest
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from creinn.cli.main import COMMANDS, main
from creinn.cli.parsing import parse_options

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "reference").glob("*.md"),
    ]
)
PIECE = re.compile(
    r"<!-- (?P<note>.*?) ?-->|^(?P<fence>```+)(?P<language>\S*)\n(?P<code>.*?)^(?P=fence)$",
    re.S | re.M,
)
SHELL = ("", "bash", "sh")
OPTIONAL = (
    (ROOT / "pyproject.toml")
    .read_text()
    .split("[project.optional-dependencies]")[1]
    .split("[project.scripts]")[0]
)
EXTRAS = re.findall(r"^(\w+) = \[", OPTIONAL, re.M)
TARGETS = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)


@dataclass(frozen=True)
class Block:
    """Code block of a page, with its language, its first line and its note."""

    language: str
    code: str
    line: int
    note: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found, note = [], ""
    for piece in PIECE.finditer(text):
        line = text.count("\n", 0, piece.start()) + 1
        if (remark := piece["note"]) is not None:
            note = remark
            if remark.startswith("setup\n"):
                found.append(Block("python", remark.removeprefix("setup\n"), line, ""))
            continue
        found.append(Block(piece["language"], piece["code"], line, note))
        note = ""
    return found


def with_code(pages: list[Path], *languages: str) -> list[Path]:
    return [page for page in pages if any(block.language in languages for block in blocks(page))]


def run_python(block: Block, page: Path, names: dict) -> None:
    if block.note.startswith("not run: "):
        compile(block.code, f"{page.name}:{block.line}", "exec")
    elif ">>>" in block.code:
        test = doctest.DocTestParser().get_doctest(
            block.code, names, page.name, str(page), block.line
        )
        runner = doctest.DebugRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        try:
            runner.run(test, clear_globs=False)
        except doctest.DocTestFailure as error:
            line = block.line + error.example.lineno + 1
            pytest.fail(
                f"{page.name}:{line}\n{error.example.source}gave\n{error.got}not\n{error.example.want}"
            )
        names.update(test.globs)
    else:
        exec(compile("\n" * block.line + block.code, str(page), "exec"), names)


def commands(code: str) -> list[list[str]]:
    """Return the words of each command without substitutions."""
    lines = re.sub(r"\\\n", " ", re.sub(r"\$\(.*?\)|…", "", code)).splitlines()
    found = []
    for line in lines:
        words = [] if line.startswith("#") else shlex.split(line, comments=True)
        while words:
            end = next((k for k, word in enumerate(words) if word in ("&&", "|", "&")), len(words))
            found.append(words[:end])
            words = words[end + 1 :]
    return [words for words in found if words]


def check_command(words: list[str]) -> None:
    """Check that commands, options, scripts, targets and extras exist."""
    if (
        "creinn" in words[:1]
        or words[0] == "torchrun"
        or (words[0] == "srun" and "torchrun" in words)
    ):
        arguments = words[words.index("creinn") + 1 :]
        parse_options(COMMANDS[arguments[0]], "creinn", arguments[1:])
    elif words[0] == "python":
        script = words[2].replace(".", "/") if words[1] == "-m" else words[1]
        assert any(
            (ROOT / path).exists() for path in (script, f"{script}.py", f"{script}/__main__.py")
        ), words
    elif words[0] == "make":
        assert words[1] in TARGETS, words
    elif words[:2] == ["pip", "install"]:
        for extra in re.findall(r"\[(.*?)\]", " ".join(words)):
            assert set(extra.split(",")) <= set(EXTRAS), words
    else:
        assert words[0] in ("git", "cd", "dask", "srun") or words[0].startswith("node0="), words


@pytest.mark.parametrize(
    "page", with_code(PAGES, "python", *SHELL), ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python":
            run_python(block, page, names)
        elif block.language in SHELL:
            for words in commands(block.code):
                check_command(words)
                if block.note == "run":
                    assert main(words[1:]) == 0, (page.name, words, capsys.readouterr())


def test_commands_in_the_text_parse():
    """The commands between single backquotes can be parsed."""
    for page in PAGES:
        for text in re.findall(r"`(creinn [a-z][^`|]*?)`", re.sub(PIECE, "", page.read_text())):
            if "--" in text and "..." not in text and "…" not in text:
                words = shlex.split(text)
                kind = COMMANDS[words[1]]
                known = {
                    f"--{name.rstrip('_').replace('_', '-')}" for name in kind.__dataclass_fields__
                } | {"--config"}
                assert {
                    word.partition("=")[0] for word in words if word.startswith("--")
                } <= known, (page.name, text)


def test_invalid_code_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- setup\na = 1\n-->\n```python\n>>> a + 1\n3\n\n```\n```\ncreinn train --no-such-option 1\n```\n"
    )
    setup, wrong, shell = blocks(page)
    names: dict = {}
    run_python(setup, page, names)
    with pytest.raises(pytest.fail.Exception, match=r"page.md:5\na \+ 1\ngave\n2\nnot\n3"):
        run_python(wrong, page, names)
    with pytest.raises(Exception, match="no-such-option"):
        check_command(commands(shell.code)[0])
