"""The server of forks outlives clients that are killed while they ask, and leaves no process behind."""

import array
import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are those of Linux")

HELPERS = Path(__file__).with_name("helpers")
# what is forked does not become the program that it is asked for
SERVER = f"""
import os, sys, time
sys.path.insert(0, {str(HELPERS)!r})
import fork_server
asked, _ = fork_server.serve(sys.argv[1], int(sys.argv[2]))
time.sleep(asked["seconds"])
os._exit(7)
"""


@pytest.fixture
def owner():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def address(owner, tmp_path):
    folder = tmp_path / ("long" * 30)  # sockets have short addresses
    folder.mkdir()
    path = str(folder / "server")
    server = subprocess.Popen([sys.executable, "-c", SERVER, path, str(owner.pid)])
    while not os.path.exists(path):
        assert server.poll() is None
        time.sleep(0.01)
    yield path
    server.kill()
    server.wait()


def ask(address, seconds, parts=3):
    """A connection that has sent so many of the parts of a request: its size with the files, half of it, the rest."""
    message = json.dumps({"files": [0], "seconds": seconds}).encode()
    from forked_python import in_folder

    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    in_folder(address, connection.connect)
    if parts > 0:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
        connection.sendmsg([len(message).to_bytes(4, "big")], rights)
    if parts > 1:
        connection.sendall(message[:5])
    if parts > 2:
        connection.sendall(message[5:])
    return connection


@pytest.mark.parametrize("parts", range(4))
def test_a_client_is_killed_while_it_asks(address, parts):
    ask(address, 600, parts).close()
    with ask(address, 0) as connection:
        pid, status = connection.makefile().read().split()
    assert int(pid) > 0
    assert status == "7"


def test_what_was_forked_ends_with_the_owner(address, owner):
    with ask(address, 600) as connection:
        answers = connection.makefile()
        forked = os.pidfd_open(int(answers.readline()))
        owner.kill()
        assert answers.read() == ""  # the server has ended

    try:
        assert select.select([forked], [], [], 60)[0]
    finally:
        os.close(forked)
