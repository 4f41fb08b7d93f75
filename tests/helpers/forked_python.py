"""Stands in the place of Python's interpreter: has a process forked that has imported already what a recipe imports.

To import TensorFlow takes seconds, which the hundreds of programs that tests start would each spend. Programs that are
none of `MODULES`, and those whose environment the server of forks cannot give them, get the interpreter itself.
Signals, standard streams, open files, limits, the folder and the status are those of this process. It is no child,
though: `fork_server.process_of` tells tests that look into /proc which one it is.

Run as `python -ISE forked_python.py PYTHON WORDS`, by the script that `fork_server.interpreter` writes.
"""

import array
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

# what is read while modules are imported: another value needs a process of its own
AT_IMPORT = ("JAX_", "KERAS_BACKEND", "KERAS_HOME", "LANG", "LC_", "PYTHON", "LD_")
# but for these, which do not matter once it has been imported
AFTERWARDS = (
    *("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH"),
    "JAX_NUM_CPU_DEVICES",  # the server of forks tells JAX
)
# what may run in a process that has imported the project already
MODULES = ("recipes", "page_code")
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


def fixed(environment):
    """The variables that a process forked for this environment cannot change."""
    found = {name: value for name, value in environment.items() if name.startswith(AT_IMPORT)}
    found.setdefault("KERAS_BACKEND", "tensorflow")
    return {name: value for name, value in found.items() if name not in AFTERWARDS}


def can_be_forked(words, environment):
    if len(words) < 2 or words[0] != "-m":
        return False
    if any(name.startswith("KERAS_DISTRIBUTION_") for name in environment):
        return False  # the connections between processes of JAX do not survive a fork
    mine = fixed(environment)
    backend = mine.pop("KERAS_BACKEND")
    base = json.loads(environment["ZOO_TESTS_FORK"])
    known = base["environment"].get("PYTHONPATH", "").split(os.pathsep)
    for path in environment.get("PYTHONPATH", "").split(os.pathsep):
        if path not in known and not os.path.realpath(path).startswith(base["root"]):
            return False  # other modules than those that have been imported may lie there
    return words[1].split(".")[0] in MODULES and backend in ("tensorflow", "jax") and mine == base["fixed"]


def in_folder(address, use):
    """Calls a function with a short address of a socket: those of Unix have at most 107 bytes."""
    folder = os.open(os.path.dirname(address), os.O_RDONLY)
    try:
        use(f"/proc/self/fd/{folder}/{os.path.basename(address)}")
    finally:
        os.close(folder)


def connect(python, environment):
    """A connection to the server of this environment, which the first process to ask starts."""
    base = json.loads(environment["ZOO_TESTS_FORK"])
    backend = fixed(environment)["KERAS_BACKEND"]
    address = os.path.join(base["folder"], f"{backend}.socket")
    connection = socket.socket(socket.AF_UNIX)
    with open(f"{address}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(address):
            with open(f"{address}.log", "w") as log:
                command = [python, base["server"], address, str(base["owner"])]
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd="/",
                    env={**base["environment"], "KERAS_BACKEND": backend},
                )
                while not os.path.exists(address):
                    if process.poll() is not None:
                        raise SystemExit(f"The server of forks ended; {address}.log says why.")
                    time.sleep(0.05)
    in_folder(address, connection.connect)
    return connection


def main(python, words):
    environment = dict(os.environ)
    if not can_be_forked(words, environment):
        os.execv(python, [python, *words])
    open_files = [int(name) for name in os.listdir("/proc/self/fd")]
    open_files = [number for number in open_files if os.path.exists(f"/proc/self/fd/{number}")]
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    connection = connect(python, environment)
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    message = {
        "words": words,
        "environment": environment,
        "folder": os.getcwd(),
        "files": open_files,
        "limits": limits,
    }
    data = json.dumps(message).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", open_files))]
    connection.sendmsg([len(data).to_bytes(4, "big")], rights)
    connection.sendall(data)
    answers = connection.makefile("r")
    pid = int(answers.readline())
    place = os.path.join(json.loads(environment["ZOO_TESTS_FORK"])["folder"], f"{os.getpid()}.process")
    with open(place, "w") as file:
        file.write(str(pid))

    def forward(number, frame):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    for number in FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    # whoever reads its end must see it when the process closes it
    for number in open_files:
        os.close(number)
    line = answers.readline()
    status = int(line) if line else -signal.SIGKILL
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
