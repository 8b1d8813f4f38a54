"""What stands for Python where tests start programs warm, beside its server: see warm.py.

Its first argument is the server, the others are the program's.
"""

import array
import json
import os
import signal
import socket
import sys

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def asked():
    """The job; None for what the usual Python has to run."""
    words = sys.argv[2:]
    unbuffered = words[:1] == ["-u"]
    words = words[unbuffered:]
    if not words or os.environ.get("OMP_NUM_THREADS") != "1" or "PYTHONHASHSEED" in os.environ:
        return None
    if words[0] in ("-c", "-m") and len(words) > 1:
        kind, what, arguments = words[0][1], words[1], words[2:]
    elif not words[0].startswith("-"):
        kind, what, arguments = "file", words[0], words[1:]
    else:
        return None
    return {
        "kind": kind,
        "what": what,
        "arguments": arguments,
        "unbuffered": unbuffered or bool(os.environ.get("PYTHONUNBUFFERED")),
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
    }


def main():
    """Have it run; end as it did."""
    job = asked()
    if job is None:
        os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
    link = socket.socket(socket.AF_UNIX)
    link.connect(sys.argv[1])
    text = json.dumps(job).encode()
    files = array.array("i", (0, 1, 2))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
    link.sendmsg([len(text).to_bytes(4, "big")], rights)
    link.sendall(text)
    for one in SIGNALS:
        signal.signal(one, lambda number, _: link.sendall(bytes([number])))
    said = b""
    while not said.endswith(b"\n"):
        part = link.recv(64)
        if not part:
            os._exit(1)
        said += part
    end(int(said))


def end(code):
    """With the same exit code, or by the same signal."""
    if code < 0:
        if -code in SIGNALS:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
