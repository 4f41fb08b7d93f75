"""Forks the programs of `recipes` from a process that has imported what they import; see `forked_python`.

Run as `python fork_server.py SOCKET OWNER`; ends when the process OWNER does, and all that it has forked with it.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import shlex
import signal
import socket
import sys
from pathlib import Path

from one_stack import keep_one_stack

ROOT = Path(__file__).parents[2]
MOST_FILES = 250


def interpreter(folder):
    """Writes a script that stands in the place of Python's interpreter; the variables that lead there."""
    from forked_python import fixed  # imports what is of Unix

    mine = fixed(os.environ)
    del mine["KERAS_BACKEND"]
    about = {
        "folder": str(folder),
        "fixed": mine,
        "root": str(ROOT),
        "server": __file__,
        "owner": os.getpid(),
        "environment": dict(os.environ),
    }
    words = [sys.executable, "-ISE", str(Path(__file__).with_name("forked_python.py")), sys.executable]
    script = Path(folder, Path(sys.executable).name)
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    return {"ZOO_TESTS_FORK": json.dumps(about), "ZOO_TESTS_PYTHON": str(script)}


def process_of(pid):
    """The number of the process that does the work of one that a test has started."""
    if "ZOO_TESTS_FORK" not in os.environ:
        return pid
    place = Path(json.loads(os.environ["ZOO_TESTS_FORK"])["folder"], f"{pid}.process")
    return int(place.read_text()) if place.exists() else pid


def preload():
    """Imports what programs of `recipes` import, and starts nothing: a fork has the threads of none."""
    sys.path.insert(0, str(ROOT))
    import recipes

    for module in pkgutil.walk_packages(recipes.__path__, "recipes."):
        if ".benchmark" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    if "tensorflow" in sys.modules:
        import tensorflow_text  # noqa: F401
        from tensorflow.python.eager import context

        assert context.context()._context_handle is None, "an import has started TensorFlow's threads"
    del sys.path[0]
    keep_one_stack()
    gc.set_threshold(100_000, 20, 100)  # as tests have it
    gc.collect()
    gc.freeze()  # searches for rubbish would copy all pages


def open_files():
    numbers = {int(name) for name in os.listdir("/proc/self/fd")}
    return {number for number in numbers if os.path.exists(f"/proc/self/fd/{number}")}


def receive(connection):
    """What a client asks for, and the numbers that its files have here by those that they have there.

    An OSError tells that the client was killed before it had asked.
    """
    size = array.array("i").itemsize
    data, rights, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(MOST_FILES * size))
    files = array.array("i")
    for _, _, content in rights:
        files.frombytes(content[: len(content) - len(content) % size])
    left, parts = int.from_bytes(data, "big"), []
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    if left or not parts:
        for number in files:
            os.close(number)
        raise ConnectionError("the client was killed")
    asked = json.loads(b"".join(parts))
    return asked, dict(zip(asked["files"], files, strict=True))


def become(asked, files, kept):
    """Makes this process the one that a client asks for; its words."""
    import resource  # of Unix

    os.setpgid(0, 0)
    above = max([*files, *open_files()]) + 1
    for index, here in enumerate(files.values()):
        os.dup2(here, above + index)
    for number in open_files() - kept:
        if number < above:
            os.close(number)
    for index, number in enumerate(files):
        os.dup2(above + index, number, inheritable=True)
        os.close(above + index)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for name, limit in asked["limits"].items():
        resource.setrlimit(getattr(resource, name), limit)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    for name, number in (("stdout", 1), ("stderr", 2)):
        errors = "backslashreplace" if number == 2 else None
        stream = open(number, "w", buffering=1 if number == 2 else -1, errors=errors, closefd=False)
        stream.reconfigure(write_through=unbuffered, line_buffering=number == 2 or os.isatty(number))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if "jax" in sys.modules and "JAX_NUM_CPU_DEVICES" in os.environ:
        sys.modules["jax"].config.update("jax_num_cpu_devices", int(os.environ["JAX_NUM_CPU_DEVICES"]))
    paths = os.environ.get("PYTHONPATH", "")
    sys.path[:0] = [os.getcwd(), *filter(None, paths.split(os.pathsep))]
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return asked["words"]


def kill(pid):
    """Kills what was forked, and what it has started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it is no group yet
        os.kill(pid, signal.SIGKILL)


def serve(address, owner):
    """Forks until the owner ends, and kills what is left then.

    Returns in each process that is forked, with what it is asked for.
    """
    from forked_python import in_folder  # imports what is of Unix

    listener = socket.socket(socket.AF_UNIX)
    in_folder(f"{address}.new", listener.bind)
    listener.listen(64)
    os.rename(f"{address}.new", address)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, "new")
    selector.register(os.pidfd_open(owner), selectors.EVENT_READ, "owner")
    while True:
        for key, _ in selector.select():
            if key.data == "owner":
                for one in selector.get_map().values():
                    if one.data[0] == "ended":
                        kill(one.data[1])
                raise SystemExit
            if key.data == "new":
                connection, _ = listener.accept()
                try:
                    asked, files = receive(connection)
                except OSError:
                    connection.close()
                    continue
                pid = os.fork()
                if not pid:
                    # now: when rubbish is searched for, other files have these numbers
                    for one in list(selector.get_map().values()):
                        os.close(one.fileobj) if isinstance(one.fileobj, int) else one.fileobj.close()
                    selector.close()
                    connection.close()
                    return asked, files
                for number in files.values():
                    os.close(number)
                with contextlib.suppress(OSError):  # the client was killed: its connection tells so below
                    connection.sendall(f"{pid}\n".encode())
                ended = os.pidfd_open(pid)
                selector.register(ended, selectors.EVENT_READ, ("ended", pid, connection))
                selector.register(connection, selectors.EVENT_READ, ("left", pid, ended))
                continue
            what, pid, other = key.data
            if what == "left":  # the client was killed
                kill(pid)
                selector.unregister(key.fileobj)
                key.fileobj.close()
            else:
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                selector.unregister(key.fileobj)
                os.close(key.fileobj)
                try:
                    selector.unregister(other)
                    other.sendall(f"{status}\n".encode())
                    other.close()
                except (KeyError, ValueError, OSError):
                    pass  # the client was killed before
            break  # the list may name what has just been closed


if __name__ == "__main__":
    preload()
    kept = open_files()
    asked, files = serve(sys.argv[1], int(sys.argv[2]))
    del sys.argv[1:]
    words = become(asked, files, kept)
    import runpy

    sys.executable = os.environ["ZOO_TESTS_PYTHON"]
    module = words[1]
    sys.argv[:] = [module, *words[2:]]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
