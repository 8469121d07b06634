"""Runs the workers of an iterative job in the tasks of a barrier stage, for `pellucid iterate --on spark`.

Started by the command with one argument, a request in JSON (`hosting.rs` writes it). It says `ready` with where
Spark's driver is and how many workers fit, reads where the job's controller listens from standard input, and
runs one Spark job: as many tasks at once as there are workers, each of which starts the command as a worker process and
waits for its end. What workers say to each other and to the controller does not go through Spark.

In each attempt tasks tell each other once how their workers started (`allGather`), so that what none of them can do,
such as finding the data, is an answer and not a reason to try again. After that a task fails where its worker does: then
Spark ends the others and tries the stage again, and new workers go on from the job's snapshot.
"""

import json
import os
import re
import sys
import time

import session


def slots(context, master, threads):
    """Workers of so many threads that fit at once, when the executors that come by themselves have come."""
    cluster = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master)
    if cluster:
        return int(cluster[1]) * (int(cluster[2]) // threads)
    if not master.startswith("local"):
        executors = context._jsc.sc().getExecutorMemoryStatus
        until, since, before = time.monotonic() + 60, time.monotonic(), 0
        while time.monotonic() < until and (before < 2 or time.monotonic() - since < 3):
            time.sleep(0.2)
            now = executors().size()  # the driver is one
            since, before = (since, before) if now == before else (time.monotonic(), now)
    # What a barrier stage is held against; the session's tasks take a core a thread.
    inside = context._jsc.sc()
    return inside.maxNumConcurrentTasks(inside.resourceProfileManager().defaultResourceProfile())


def worker(arguments, folder, program, controller, secret):
    """What a task does: runs a worker to its end; yields why it could not start, if one of all could not."""

    def run(_):
        import ctypes
        import signal
        import socket
        import subprocess
        import tempfile

        from pyspark import BarrierTaskContext, SparkFiles

        context = BarrierTaskContext.get()
        path = program if os.path.isabs(program) else SparkFiles.get(program)
        given = {
            "PELLUCID_ITERATE_CONTROLLER": controller,
            "PELLUCID_ITERATE_SECRET": secret,
            # Of an attempt that Spark has given up, workers may still be there for a moment.
            "PELLUCID_ITERATE_RANK": str(context.taskAttemptId()),
        }
        end_with_parent = ctypes.CDLL(None).prctl
        with tempfile.TemporaryFile("w+") as said:

            def last():
                said.seek(0)
                lines = [line.strip() for line in said if line.strip()]
                return f"worker on {socket.gethostname()}: {lines[-1] if lines else 'it said nothing'}"

            child, why = None, None
            try:
                child = subprocess.Popen(
                    [path, *arguments],
                    env={**os.environ, **given},
                    cwd=folder if os.path.isdir(folder) else None,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    preexec_fn=lambda: end_with_parent(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
                )
                if not child.stdout.readline():
                    child.wait()
                    why = last()
            except OSError as error:
                why = f"worker on {socket.gethostname()}: {path} cannot be started: {error.strerror}"
            failed = [told for told in context.allGather(why or "") if told]
            if failed:
                if child:
                    child.kill()
                    child.wait()
                yield failed[0]
            elif child.wait() != 0:
                raise RuntimeError(f"{last()} (exit {child.returncode})")

    return run


def main(request):
    """One session, one job."""
    spark = session.start(request)
    context = spark.sparkContext
    try:
        master, conf = context.master, context.getConf()
        threads = request["threads"]
        workers = request["workers"] or slots(context, master, threads)
        if workers < 1:
            raise session.Refused(f"no executor has {threads} cores for a worker's threads; say fewer with --workers")
        # Executors of a local master run where the command is.
        local = master.startswith("local")
        if not local:
            context.addFile(request["program"])
        session.say(ready={"host": conf.get("spark.driver.host"), "workers": workers})
        invitation = json.loads(sys.stdin.readline())
        program = request["program"] if local else os.path.basename(request["program"])
        run = worker(request["arguments"], request["cwd"], program, **invitation)
        told = context.parallelize(range(workers), workers).barrier().mapPartitions(run)
        # A barrier stage is tried again only where others follow it: a job's last one may have had an effect.
        failed = told.map(lambda why: (0, why)).partitionBy(1, lambda key: 0).values().collect()
        session.say(**({"failed": failed[0]} if failed else {"done": True}))
    finally:
        spark.stop()


if __name__ == "__main__":
    # As in session.py: what others print is no answer of ours.
    session.OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with open(sys.argv[1]) as source:
        wanted = json.load(source)
    if session.settings(wanted)["spark.master"].startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        main(wanted)
    except session.Refused as error:
        session.say(refused=str(error))
    except Exception as error:
        cause = getattr(error, "java_exception", None)
        text = cause.getMessage() if cause and cause.getMessage() else str(error)
        # A worker's own words, where a task failed with them.
        told = re.findall(r"RuntimeError: (worker on .*)", text)
        session.say(failed=told[-1] if told else session.first_line(text))
