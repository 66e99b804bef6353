"""Where results come from: versions, command, commit."""

import subprocess

import pytest
import torch

from creinn.report.provenance import commit, provenance


def git(directory, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    return done.stdout.strip()


def test_versions_and_command():
    found = provenance("creinn demo --seed 1")
    assert found["command"] == "creinn demo --seed 1"
    assert torch.__version__.startswith(
        found["versions"]["torch"]
    )  # PyPI's wheels leave out the build, "+cu130"


def test_commit_of_a_repository(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1")
    assert commit(tmp_path) is None
    git(tmp_path, "add", "code.py")
    assert commit(tmp_path) is None  # nothing committed yet
    git(tmp_path, "commit", "-q", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit(tmp_path) == head
    (tmp_path / "code.py").write_text("2")
    assert commit(tmp_path) == f"{head}-dirty"


def test_untracked_folder_of_a_repository_has_no_commit(tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "code.py").write_text("1")
    assert commit(tmp_path / "site-packages") is None


def test_no_repository_has_no_commit(tmp_path):
    assert commit(tmp_path) is None
