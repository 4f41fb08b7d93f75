"""Printing where the console lacks characters, its reader has left, or the disk under the log is full."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORK = """
import sys
from pathlib import Path
from recipes.command.printing import lasting_output
with lasting_output():
    with lasting_output():  # a command within a command
        for place in (sys.stdout, sys.stderr):
            print("M\\u00fcller \\u4f4f\\u5728 \\U0001f642 \\ud83d", file=place, flush=True)
            print("a" * 100_000, file=place)
    Path(sys.argv[1]).write_text("done")
"""
# characters that neither encoding has, and one that cp1252 has
SHOWN = {"ascii": b"M\\xfcller \\u4f4f\\u5728 \\U0001f642 \\ud83d", "cp1252": b"M\xfcller \\u4f4f\\u5728"}


def run(words, stdout, stderr=subprocess.PIPE, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, *words], stdout=stdout, stderr=stderr, env=environment, timeout=120)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("encoding", [*SHOWN, "ascii:strict"])
def test_characters_that_the_console_lacks_are_escaped(encoding, unbuffered, tmp_path):
    variables = {"PYTHONIOENCODING": encoding, "PYTHONUNBUFFERED": unbuffered}
    result = run(["-c", WORK, str(tmp_path / "end")], subprocess.PIPE, **variables)
    assert result.returncode == 0 and (tmp_path / "end").read_text() == "done"
    errors, line, sentence = result.stderr[:-1].rpartition(b"\n")
    assert sentence.startswith(b"Characters that the encoding of the output, ") and b"PYTHONUTF8=1" in sentence
    for output in (result.stdout, errors + line):
        assert output.startswith(SHOWN[encoding.partition(":")[0]]) and output.endswith(b"a" * 100_000 + b"\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("kind", ["closed pipe", "full disk"])
def test_work_goes_on_where_nobody_takes_what_is_printed(kind, unbuffered, tmp_path):
    if kind == "full disk" and not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    if kind == "full disk":
        place = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, place = os.pipe()
        os.close(reading)
    try:
        result = run(["-c", WORK, str(tmp_path / "end")], place, PYTHONUNBUFFERED=unbuffered)
        both = run(["-c", WORK, str(tmp_path / "both")], place, place, PYTHONUNBUFFERED=unbuffered)
    finally:
        os.close(place)
    assert (tmp_path / "end").read_text() == (tmp_path / "both").read_text() == "done"
    assert result.returncode == both.returncode == 1
    assert (b"No space left" in result.stderr) == (kind == "full disk")


def test_work_goes_on_without_a_standard_output(tmp_path):
    words = ["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-c", WORK, str(tmp_path / "end")]
    done = subprocess.run(words, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120)
    assert done.returncode == 1 and (tmp_path / "end").read_text() == "done", done.stderr
    assert os.strerror(errno.EBADF).encode() in done.stderr


def test_the_status_of_an_error_stays():
    code = "from recipes.command.printing import lasting_output\nwith lasting_output():\n    print(1)\n    raise {}"
    with open("/dev/full" if os.path.exists("/dev/full") else os.devnull, "w") as place:
        assert run(["-c", code.format("SystemExit(2)")], place).returncode == 2
        result = run(["-c", code.format("KeyError('a bug')")], place)
    assert result.returncode == 1 and b"KeyError" in result.stderr


@pytest.mark.parametrize("words", [["recipes", "recipes"], ["recipes", "presets"], ["recipes.translate", "--help"]])
def test_commands_print_on_every_console(words):
    result = run(["-m", *words], subprocess.PIPE, PYTHONIOENCODING="ascii:strict")
    assert result.returncode == 0 and result.stdout.isascii() and len(result.stdout) > 1000
