"""Runs policies in separate processes, and kills them when revealed.

Imports once; every order (a line of JSON on stdin) is a fork, so that a run starts within milliseconds. The answer (a
line on stdout) says how the process ended. Nothing is run here itself: threads would not live through a fork.
"""

import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path

from dptext_etl import Policy, run
from dptext_etl.errors import DPTextError
from dptext_etl.mechanisms import custext  # noqa: F401  (what the policies of drills name)

REFUSED = 3


def act(order):
    """Run one policy; its output goes into a file, and every step that it reaches."""
    if order.get("file_limit") is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_limit"], resource.RLIM_INFINITY))
    said = Path(order["said"])
    steps = os.open(order["steps"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        policy = Policy.parse(order["policy"])
        summary = run(policy, checkpoint=lambda name: os.write(steps, f"{name}\n".encode()))
    except DPTextError as refusal:
        said.write_text(str(refusal))
        return REFUSED
    said.write_text(json.dumps({"rows": summary.rows, "version": summary.version}))
    return 0


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        began = time.perf_counter()
        child = os.fork()
        if not child:
            code = 1
            try:
                code = act(order)
            finally:
                os._exit(code)
        if order.get("kill_after") is not None:
            watched = os.pidfd_open(child)
            if not select.select([watched], [], [], order["kill_after"])[0]:
                os.kill(child, signal.SIGKILL)
            os.close(watched)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"status": status, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
