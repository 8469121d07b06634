"""The Spark session of `bench.storage`: its jars, settings, requests and logs (`session.py` is the other end).

PySpark includes Hadoop's client, but not S3A and the committers for object stores. Those are downloaded once from
Maven's registry and kept with the services. Swift is used through its S3 interface, since Hadoop has dropped its client.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import zstandard

from bench.common import results
from bench.storage.rig import Place
from harness import spark
from harness.event_logs import lines_of
from harness.stores import services
from lab.spark_logs import renamed

# Hadoop as PySpark 4.3 brings it; the newest binding that the registry has.
HADOOP, SPARK_CLOUD = "3.5.0", "4.1.2"
START_S, ANSWER_S, END_S = 120, 180, 30
EVERYTHING = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
# Committers: with Hadoop's, tasks and driver rename the output; the magic one completes uploads.
RENAME = {
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": ("org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory"),
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
}
MAGIC = {
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.hadoop.fs.s3a.committer.magic.enabled": "true",
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
}


def jars() -> Path:
    """Returns the folder with S3A, Amazon's client and Spark's binding to committers, downloaded once."""

    def make(place: Path) -> None:
        def dependency(group: str, name: str, version: str, alone: bool) -> str:
            rest = EVERYTHING if alone else ""
            return f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{rest}</dependency>"

        wanted = dependency("org.apache.hadoop", "hadoop-aws", HADOOP, False)
        wanted += dependency("org.apache.spark", "spark-hadoop-cloud_2.13", SPARK_CLOUD, True)
        (place / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>pellucid</groupId>'
            f"<artifactId>s3a</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>"
        )
        # Hadoop itself comes with PySpark.
        options = ["-DincludeScope=runtime", "-DexcludeArtifactIds=hadoop-common,hadoop-client-api,hadoop-client-runtime"]
        services.run("mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={place / 'jars'}", *options, cwd=place)

    return services.install(services.home() / f"s3a-{HADOOP}", make) / "jars"


class Session:
    """A running Spark application."""

    def __init__(self, process: subprocess.Popen, events: Path):
        self.process, self.events = process, events
        self.version = self._answer(START_S)["ready"]

    def ask(self, what: dict) -> dict:
        """Runs a request, and returns its answer. Raises `Missing` if the session has ended."""
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise services.Missing(f"the Spark session has ended: {error}") from None
        return self._answer(ANSWER_S)

    def _answer(self, limit_s: float) -> dict:
        timer = threading.Timer(limit_s, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith("RESULT "):
                    return json.loads(line.removeprefix("RESULT "))
        finally:
            timer.cancel()
        raise services.Missing(f"the Spark session exited with {self.process.wait()} or did not answer within {limit_s:.0f} s")

    def pids(self) -> list[int]:
        """Returns the processes of the Python program and its descendants, such as the JVM."""
        found, last = [self.process.pid], [self.process.pid]
        while last:
            children = []
            for pid in last:
                with contextlib.suppress(OSError):
                    children += [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            found, last = found + children, children
        return found


@contextlib.contextmanager
def session(name: str, places: list[Place], committer: dict[str, str], folder: Path) -> Iterator[Session]:
    """Starts a session with the settings of all compositions. Raises `Missing` if Spark cannot run here."""
    if why := spark.missing():
        raise services.Missing(why)
    events = folder / f"events-{name}"
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir(parents=True)
    classes = ":".join(str(jar) for jar in sorted(jars().glob("*.jar")))
    settings = {
        "spark.app.name": f"storage-{name}",
        "spark.master": "local[2]",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": classes,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        # An unsupported request should fail at once, not after minutes of retries.
        "spark.hadoop.fs.s3a.attempts.maximum": "3",
        "spark.hadoop.fs.s3a.retry.limit": "2",
        "spark.hadoop.fs.s3a.retry.interval": "100ms",
        "spark.hadoop.fs.s3a.retry.http.5xx.errors": "false",
        **committer,
    }
    for place in places:
        settings |= place.spark
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=folder) as file:
        copies = {place.spark_url: place.replication for place in places if place.replication}
        json.dump({"settings": settings, "copies": copies}, file)
        file.flush()
        command = [str(spark.python()), "-B", str(Path(__file__).with_name("session.py")), file.name]
        environment = os.environ | {"HADOOP_USER_NAME": "pellucid"}
        with open(folder / f"{name}.log", "w") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
            # A new process group, so that the JVM ends with the program.
            process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
            try:
                yield Session(process, events)
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    process.stdin.close()
                    process.wait(END_S)
            finally:
                # An interrupted benchmark does not wait for the current request.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def log_of(events: Path) -> Path:
    """Returns the event log of an ended session."""
    (log,) = [path for path in events.iterdir() if not path.name.startswith(".")]
    return log


def task_times(log: Path, spans: list[tuple[float, float]]) -> list[list[float]]:
    """Returns the seconds of the tasks launched within each span of Unix time."""
    times: list[list[float]] = [[] for _ in spans]
    for line in lines_of(log):
        if not line.startswith(b'{"Event":"SparkListenerTaskEnd"'):
            continue
        info = json.loads(line)["Task Info"]
        launched, finished = info["Launch Time"] / 1e3, info["Finish Time"] / 1e3
        for span, found in zip(spans, times, strict=True):
            if span[0] <= launched <= span[1]:
                found.append(finished - launched)
    return times


def began_within(spans: list[tuple[float, float]]) -> Callable[[dict], Iterable[int]]:
    """Returns a function that takes the events of a log in order, and returns the spans of Unix time in which an event's
    job or query began, or all spans for an event of neither."""
    jobs: dict[int, list[int]] = {}
    stages: dict[int, list[int]] = {}
    queries: dict[int, list[int]] = {}

    def numbers(event: dict) -> Iterable[int]:
        at = event.get("Submission Time" if "Stage IDs" in event else "time", 0) / 1e3
        began = [number for number, (since, until) in enumerate(spans) if since <= at <= until]
        if "Stage IDs" in event:
            jobs[event["Job ID"]] = began
            stages.update(dict.fromkeys(event["Stage IDs"], began))
        if event["Event"].endswith("SQLExecutionStart"):
            queries[event["executionId"]] = began
        stage = event.get("Stage ID", event.get("Stage Info", {}).get("Stage ID"))
        known = ((jobs, event.get("Job ID")), (stages, stage), (queries, event.get("executionId")))
        return next((of[key] for of, key in known if key in of), range(len(spans)))

    return numbers


def keep(log: Path, parts: dict[Path, tuple[float, float]], disk: Path | None = None) -> None:
    """Copies parts of a log, each with the jobs and queries that began within a span of Unix time, without details of this
    machine: the environment keeps only Spark's settings, and paths are replaced."""
    texts: list[list[str]] = [[] for _ in parts]
    numbers = began_within(list(parts.values()))
    names = {str(results.ROOT): "/project"} | ({str(disk): "/disk"} if disk else {})
    for line in lines_of(log):
        event = json.loads(line)
        if not (of := numbers(event)):
            continue
        if event["Event"] == "SparkListenerEnvironmentUpdate":
            settings = {k: v for k, v in event["Spark Properties"].items() if "ClassPath" not in k and "JavaOptions" not in k}
            event = {"Event": event["Event"], "Spark Properties": settings}
        text = renamed(json.dumps(event, separators=(",", ":")), names) + "\n"
        for number in of:
            texts[number].append(text)
    for target, part in zip(parts, texts, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(zstandard.compress("".join(part).encode()))
