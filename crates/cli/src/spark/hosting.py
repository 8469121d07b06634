"""Runs the workers of an iterative job in the tasks of a barrier stage, for `pellucid iterate --on spark`.

`hosting.rs` sends the request as one JSON line on standard input. The session replies `ready` with the address of
Spark's driver and the number of workers that fit, reads the address of the job's controller from standard input, and
runs one Spark job with one concurrent task per worker. Each task starts the command as a worker process and waits for
it. Messages between workers and the controller do not pass through Spark.

In each attempt, the tasks exchange once whether their workers started (`allGather`). A permanent error, such as missing
data, therefore becomes the job's result instead of causing a retry. Later, a task fails if its worker fails: Spark then
stops the other tasks and retries the stage, and the new workers resume from the job's snapshot.
"""

import os
import re
import sys
import time

import session


def slots(context, master, threads):
    """Returns how many workers with this number of threads fit, after waiting for executors to register."""
    cluster = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master)
    if cluster:
        return int(cluster[1]) * (int(cluster[2]) // threads)
    if not master.startswith("local"):
        executors = context._jsc.sc().getExecutorMemoryStatus
        until, since, before = time.monotonic() + 60, time.monotonic(), 0
        while time.monotonic() < until and (before < 2 or time.monotonic() - since < 3):
            time.sleep(0.2)
            now = executors().size()  # includes the driver
            since, before = (since, before) if now == before else (time.monotonic(), now)
    # The limit that Spark checks for a barrier stage; each task takes one core per thread.
    inside = context._jsc.sc()
    return inside.maxNumConcurrentTasks(inside.resourceProfileManager().defaultResourceProfile())


def worker(arguments, folder, program, controller, secret):
    """Returns the function of a task: it runs a worker to completion. If any worker cannot start, it yields the error."""
    # The command of the Python package is in its extension module, for which any Python 3.11 or later is enough.
    in_python = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("pellucid._native", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.main(sys.argv[2:], sys.executable, sys.argv[1])
"""

    def run(_):
        import ctypes
        import signal
        import socket
        import subprocess
        import sys
        import tempfile

        from pyspark import BarrierTaskContext, SparkFiles

        context = BarrierTaskContext.get()
        path = program if os.path.isabs(program) else SparkFiles.get(program)
        command = [sys.executable, "-c", in_python, path] if path.endswith(".so") else [path]
        given = {
            "PELLUCID_ITERATE_CONTROLLER": controller,
            "PELLUCID_ITERATE_SECRET": secret,
            # Unique per attempt, since workers of an abandoned attempt may still run for a moment.
            "PELLUCID_ITERATE_RANK": str(context.taskAttemptId()),
        }
        end_with_parent = ctypes.CDLL(None).prctl
        with tempfile.TemporaryFile("w+") as stderr:

            def last():
                stderr.seek(0)
                lines = [line.strip() for line in stderr if line.strip()]
                return f"worker on {socket.gethostname()}: {lines[-1] if lines else 'no output'}"

            child, why = None, None
            try:
                child = subprocess.Popen(
                    [*command, *arguments],
                    env={**os.environ, **given},
                    cwd=folder if os.path.isdir(folder) else None,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    preexec_fn=lambda: end_with_parent(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
                )
                if not child.stdout.readline():
                    child.wait()
                    why = last()
            except OSError as error:
                why = f"worker on {socket.gethostname()}: cannot start {path}: {error.strerror}"
            failed = [message for message in context.allGather(why or "") if message]
            if failed:
                if child:
                    child.kill()
                    child.wait()
                yield failed[0]
            elif child.wait() != 0:
                raise RuntimeError(f"{last()} (exit {child.returncode})")

    return run


def main(request):
    """Runs one job in one session."""
    spark = session.start(request)
    context = spark.sparkContext
    try:
        master, conf = context.master, context.getConf()
        threads = request["threads"]
        workers = request["workers"] or slots(context, master, threads)
        if workers < 1:
            raise session.Refused(f"no executor has the {threads} cores that a worker needs; reduce --workers")
        # Executors of a local master run on this machine.
        local = master.startswith("local")
        if not local:
            context.addFile(request["program"])
        session.say(ready={"host": conf.get("spark.driver.host"), "workers": workers})
        invitation = session.receive()
        program = request["program"] if local else os.path.basename(request["program"])
        run = worker(request["arguments"], request["cwd"], program, **invitation)
        errors = context.parallelize(range(workers), workers).barrier().mapPartitions(run)
        # Spark retries a barrier stage only if another stage follows, since the last one may have side effects.
        failed = errors.map(lambda why: (0, why)).partitionBy(1, lambda key: 0).values().collect()
        session.say(**({"failed": failed[0]} if failed else {"done": True}))
    finally:
        spark.stop()


if __name__ == "__main__":
    # As in session.py, keep other output out of the messages.
    session.OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    wanted = session.receive()
    if session.settings(wanted)["spark.master"].startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        main(wanted)
    except session.Refused as error:
        session.say(refused=str(error))
    except Exception as error:
        cause = getattr(error, "java_exception", None)
        text = cause.getMessage() if cause and cause.getMessage() else str(error)
        # Prefer the message of a worker, if a task failed with one.
        messages = re.findall(r"RuntimeError: (worker on .*)", text)
        session.say(failed=messages[-1] if messages else session.first_line(text))
