"""What the command `zoo` says of itself, of misspelled names, and to a narrow screen."""

import sys

import pytest

import zoo
from recipes.__main__ import main


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"zoo {zoo.__version__}\n"


def test_a_misspelled_name_has_a_suggestion(capsys):
    with pytest.raises(SystemExit):
        main(["transalte"])
    assert "'transalte', did you mean 'translate'?" in capsys.readouterr().err


def test_lists_fit_the_screen(capsys, monkeypatch):
    main(["recipes"])
    assert any(len(line) > 80 for line in capsys.readouterr().out.splitlines())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    main(["recipes"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and any(line.startswith("translate ") for line in lines)
