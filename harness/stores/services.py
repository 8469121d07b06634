"""Real storage services on loopback: S3 (s3s-fs, MinIO), Swift, HDFS.

Each service is installed once, from its package registry, into `PELLUCID_SERVICES` (a folder next to the build cache).
If the installation or the start fails, `Missing` gives the reason, and tests that need the service are skipped with it.
A service stops with its `with` block, and with the process that started it.
"""

import contextlib
import ctypes
import fnmatch
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.binary import ROOT

S3S_FS = "0.14.1"
HADOOP = "3.4.1"
MINIO = "latest"
# Credentials, which no message, trace or report may contain.
SECRET = "pellucid-secret-0f1e2d3c"
KEY = "pellucid-key-4b5a6978"
START_S = 180
PR_SET_PDEATHSIG = 1
# Ports that `free_port` has returned.
_returned_ports: set[int] = set()


@dataclass(frozen=True)
class Place:
    """The location of a service: loopback, or behind a link (`Place(link.server, link.inside)` of `lab.links`)."""

    address: str = "127.0.0.1"
    # Wraps a command so that it runs there.
    inside: Callable[..., list[str]] = lambda *command: [str(c) for c in command]
    # The bucket or container of an object store.
    container: str = "bucket"


HERE = Place()


class Missing(Exception):
    """A service cannot run here; the message is the reason."""


@dataclass
class Service:
    """A running service with its address and a client's environment."""

    name: str
    url: str
    environment: dict[str, str]
    # All objects on the service's disk, including segments of large ones and unfinished uploads.
    files: Callable[[], set[str]]
    # The service's processes.
    pids: list[int]

    def env(self) -> dict[str, str]:
        """Returns the environment of a process that uses the service."""
        return os.environ | self.environment


def home() -> Path:
    """Returns the folder of installed services."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("PELLUCID_SERVICES") or cache / "pellucid" / "services")


def free_port() -> int:
    """Returns an unused port that was not returned before: the kernel may name a port twice."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in _returned_ports:
            _returned_ports.add(port)
            return port


def install(place: Path, make: Callable[[Path], None]) -> Path:
    """Fills `place` once. A partial installation is never used."""
    if not place.exists():
        partial = place.with_name(f"{place.name}.partial-{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            make(partial)
            with contextlib.suppress(FileExistsError):
                partial.rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return place


def run(*command: str | Path, **options: Any) -> None:
    try:
        ran = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=1200, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from None
    if ran.returncode:
        last = (ran.stderr.strip() or ran.stdout.strip()).splitlines()[-1:]
        raise Missing(f"{' '.join(str(c) for c in command[:4])} failed: {''.join(last)}")


_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Makes the kernel kill this new process when its parent exits (Linux only). Runs before its program starts."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _process(log: Path, at: Place, *command: str | Path, **options: Any) -> Iterator[subprocess.Popen]:
    with log.open("ab") as out:
        started = at.inside(*(str(c) for c in command))
        pipes: dict[str, Any] = {"stdout": out, "stderr": out, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(started, preexec_fn=die_with_parent, **pipes, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(name: str, ready: Callable[[], bool], log: Path, *processes: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError):
            if ready():
                return
        ended = [p for p in processes if p.poll() is not None]
        if ended or time.monotonic() > deadline:
            tail = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
            raise Missing(f"{name} did not come up ({'it ended' if ended else f'{START_S} s'}): {tail}")
        time.sleep(0.05)


def _listens(at: Place, port: int) -> bool:
    with socket.create_connection((at.address, port), 1):
        return True


# Internal files of the services: s3s-fs's attributes of deleted objects and parts of aborted requests;
# MinIO's system files except uploads.
_INTERNAL = re.compile(r"\.bucket-|(.*/)?\.tmp\.\d+\.internal\.part$|\.minio\.sys/(?!multipart/)")


def _files(folder: Path, pattern: str = "*") -> Callable[[], set[str]]:
    def files() -> set[str]:
        # Entries that vanish during the walk are skipped.
        walked = ((Path(at).relative_to(folder), names) for at, _, names in os.walk(folder))
        found = {str(at / name) for at, names in walked for name in names if fnmatch.fnmatch(name, pattern)}
        return {name for name in found if not _INTERNAL.match(name)}

    return files


def s3_environment(endpoint: str, key: str = KEY) -> dict[str, str]:
    """Returns the environment of an S3 client for a service."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


def _s3(name: str, at: Place, port: int, data: Path, process: subprocess.Popen) -> Service:
    environment = s3_environment(f"http://{at.address}:{port}")
    return Service(name, f"s3://{at.container}", environment, _files(data), [process.pid])


@contextlib.contextmanager
def s3s_fs(folder: Path, at: Place = HERE) -> Iterator[Service]:
    """S3 (s3s-fs) over a folder, with an existing bucket."""

    def make(place: Path) -> None:
        build = {"CARGO_TARGET_DIR": str(place / "build")}
        run("cargo", "install", "--quiet", "--locked", "s3s-fs", "--version", S3S_FS, "--features", "binary",
             "--root", place, env=os.environ | build)  # fmt: skip
        shutil.rmtree(place / "build", ignore_errors=True)

    binary = install(home() / f"s3s-fs-{S3S_FS}", make) / "bin" / "s3s-fs"
    port, log = free_port(), folder / "s3s-fs.log"
    data = folder / "s3s-fs"
    (data / at.container).mkdir(parents=True)
    arguments: list[str | Path] = ["--host", at.address, "--port", str(port), "--access-key", KEY, "--secret-key", SECRET, data]
    with _process(log, at, binary, *arguments) as process:
        _wait_until_ready("s3s-fs", lambda: _listens(at, port), log, process)
        yield _s3("s3s-fs", at, port, data, process)


@contextlib.contextmanager
def minio(folder: Path, at: Place = HERE) -> Iterator[Service]:
    """S3 (MinIO) over a folder, with an existing bucket. The first build takes a few minutes."""
    go = shutil.which("go") or "/usr/local/go/bin/go"

    def make(place: Path) -> None:
        run(go, "install", f"github.com/minio/minio@{MINIO}", env=os.environ | {"GOBIN": str(place)})

    binary = install(home() / "minio", make) / "minio"
    port, console, log = free_port(), free_port(), folder / "minio.log"
    data = folder / "minio"
    (data / at.container).mkdir(parents=True)
    # MinIO keeps deleted objects for minutes by default; a benchmark's outputs would fill the disk.
    own = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_API_DELETE_CLEANUP_INTERVAL": "20s"}
    environment = os.environ | own
    arguments: list[str | Path] = ["server", data, "--address", f"{at.address}:{port}", "--console-address", f"{at.address}:{console}"]
    with _process(log, at, binary, *arguments, env=environment) as process:

        def ready() -> bool:
            with urllib.request.urlopen(f"http://{at.address}:{port}/minio/health/ready", timeout=1) as answer:
                return answer.status == 200

        _wait_until_ready("MinIO", ready, log, process)
        yield _s3("minio", at, port, data, process)


_SWIFT_SERVER = """
import sys
import swift.common.utils as utils
utils.set_swift_dir(sys.argv[1])
import importlib
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(sys.argv[2], sys.argv[3]))
"""
# Includes the S3 interface, for clients that speak nothing else (Spark).
_SWIFT_PIPELINE = "catch_errors proxy-logging cache listing_formats bulk s3api tempauth copy slo dlo proxy-server"


def _memcached() -> str:
    """Returns the program that keeps Swift's tokens; installs it on Debian when run as root."""
    if os.geteuid() == 0 and shutil.which("apt-get") and not shutil.which("memcached"):
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "-qq", env=quiet)
        run("apt-get", "install", "-qq", "--no-install-recommends", "memcached", env=quiet)
    if found := shutil.which("memcached"):
        return found
    raise Missing("Swift's tokens need memcached (as root: apt-get install memcached)")


def _swift_configuration(folder: Path, at: Place, ports: dict[str, int], cache: int) -> None:
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = pellucid\n[storage-policy:0]\nname = one\ndefault = yes\n")
    common = f"bind_ip = {at.address}\nworkers = 0\nuser = {os.environ.get('USER') or 'root'}\nswift_dir = {folder}\n"
    for kind in ("account", "container", "object"):
        (folder / f"{kind}-server.conf").write_text(
            f"[DEFAULT]\nbind_port = {ports[kind]}\n{common}devices = {folder / 'disks'}\nmount_check = false\n"
            f"[pipeline:main]\npipeline = {kind}-server\n[app:{kind}-server]\nuse = egg:swift#{kind}\n"
        )
    filters = "".join(
        f"[filter:{name}]\nuse = egg:swift#{name.replace('-', '_')}\n"
        for name in _SWIFT_PIPELINE.split()
        if name not in ("tempauth", "cache", "proxy-server", "s3api")
    )
    (folder / "proxy-server.conf").write_text(
        f"[DEFAULT]\nbind_port = {ports['proxy']}\n{common}[pipeline:main]\npipeline = {_SWIFT_PIPELINE}\n"
        "[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n"
        f"[filter:tempauth]\nuse = egg:swift#tempauth\nuser_pellucid_tester = {SECRET} .admin\n"
        "[filter:s3api]\nuse = egg:swift#s3api\n"
        f"[filter:cache]\nuse = egg:swift#memcache\nmemcache_servers = {at.address}:{cache}\n{filters}"
    )


@contextlib.contextmanager
def swift(folder: Path, at: Place = HERE) -> Iterator[Service]:
    """Swift with proxy, account, container and object servers, one replica, and an existing container."""

    def make(place: Path) -> None:
        run(sys.executable, "-m", "venv", place)
        locked = ROOT / "requirements" / "swift.txt"
        run(place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--require-hashes", "-r", locked)  # fmt: skip

    python = install(home() / "swift-2.38.3", make) / "bin" / "python"
    memcached = _memcached()
    folder = folder / "swift"
    disk = folder / "disks" / "d1"
    disk.mkdir(parents=True)
    ports, cache = {kind: free_port() for kind in ("account", "container", "object", "proxy")}, free_port()
    _swift_configuration(folder, at, ports, cache)
    for kind in ("account", "container", "object"):
        builder = folder / f"{kind}.builder"
        named = "import sys; sys.argv[0] = 'swift-ring-builder'; from swift.cli.ringbuilder import main; sys.exit(main())"
        tool: list[str | Path] = [python, "-c", named, builder]
        run(*tool, "create", "4", "1", "1")
        run(*tool, "add", f"r1z1-{at.address}:{ports[kind]}/d1", "1")
        run(*tool, "rebalance")
    log = folder / "log"
    log.touch()
    with contextlib.ExitStack() as stack:
        cached = [memcached, "-l", at.address, "-p", str(cache), *(["-u", "nobody"] if os.geteuid() == 0 else [])]
        started = [stack.enter_context(_process(log, at, *cached))]
        for kind in ports:
            configuration = folder / f"{kind}-server.conf"
            server: list[str | Path] = [python, "-c", _SWIFT_SERVER, folder, configuration, f"{kind}-server"]
            started.append(stack.enter_context(_process(log, at, *server)))
        _wait_until_ready("Swift", lambda: all(_listens(at, port) for port in (*ports.values(), cache)), log, *started)
        auth = f"http://{at.address}:{ports['proxy']}/auth/v1.0"
        url, token = _swift_sign_in(auth, log, *started)
        request = urllib.request.Request(f"{url}/{at.container}", method="PUT", headers={"X-Auth-Token": token})
        urllib.request.urlopen(request, timeout=10).close()
        environment = {"ST_AUTH": auth, "ST_USER": "pellucid:tester", "ST_KEY": SECRET}
        pids = [process.pid for process in started]
        yield Service("swift", f"swift://{at.container}", environment, _files(disk / "objects", "*.data"), pids)


def _swift_sign_in(auth: str, log: Path, *started: subprocess.Popen) -> tuple[str, str]:
    answer = {}

    def ready() -> bool:
        request = urllib.request.Request(auth, headers={"X-Auth-User": "pellucid:tester", "X-Auth-Key": SECRET})
        try:
            with urllib.request.urlopen(request, timeout=5) as got:
                answer.update(got.headers)
        except urllib.error.HTTPError as error:
            raise OSError(str(error)) from None
        return "X-Storage-Url" in answer

    _wait_until_ready("Swift's proxy", ready, log, *started)
    return answer["X-Storage-Url"], answer["X-Auth-Token"]


_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pellucid</groupId><artifactId>hdfs</artifactId><version>1</version>
  <dependencies>{
    "".join(
        f"<dependency><groupId>org.apache.hadoop</groupId><artifactId>{name}</artifactId><version>{HADOOP}</version></dependency>"
        for name in ("hadoop-hdfs", "hadoop-hdfs-client", "hadoop-common")
    )
}</dependencies>
</project>
"""


@contextlib.contextmanager
def hdfs(folder: Path, at: Place = HERE, disks: Sequence[Path] = ()) -> Iterator[Service]:
    """HDFS with a name node, a data node for each disk (default: one in the folder), and as many replicas."""
    java = shutil.which("java")
    if not java:
        raise Missing("HDFS needs a Java runtime")

    def make(place: Path) -> None:
        (place / "pom.xml").write_text(_POM)
        run("mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={place / 'jars'}", cwd=place)

    jars = install(home() / f"hdfs-{HADOOP}", make) / "jars"
    folder = folder / "hdfs"
    conf = folder / "conf"
    for web in ("webapps/hdfs", "webapps/datanode"):
        (conf / web).mkdir(parents=True)
    disks = disks or [folder]
    ports = {name: free_port() for name in ("node", "http")}
    root = f"hdfs://{at.address}:{ports['node']}"
    settings = {
        "fs.defaultFS": root,
        "dfs.replication": len(disks),
        "dfs.namenode.name.dir": folder / "names",
        "dfs.namenode.http-address": f"{at.address}:{ports['http']}",
        "dfs.datanode.synconclose": "true",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.safemode.extension": "0",
        # Behind a link the address has no host name.
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.fs-limits.min-block-size": "1024",
    }
    body = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
    for name in ("core-site.xml", "hdfs-site.xml"):
        (conf / name).write_text(f"<configuration>{body}</configuration>")
    log = folder / "log"
    log.touch()
    server = [java, "-Xmx256m", "--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", f"{conf}:{jars}/*"]
    node, data = (f"org.apache.hadoop.hdfs.server.{name}" for name in ("namenode.NameNode", "datanode.DataNode"))
    environment = os.environ | {"HADOOP_USER_NAME": "pellucid"}
    with log.open("ab") as out:
        formatted = subprocess.run([*server, node, "-format", "-nonInteractive"], stdout=out, stderr=out, env=environment)
    if formatted.returncode:
        raise Missing(f"HDFS could not be formatted: {log.read_text(errors='replace').splitlines()[-1:]}")
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_process(log, at, *server, node, env=environment))]
        for disk in disks:
            own = {"dfs.datanode.data.dir": str(disk / "blocks")}
            own |= {f"dfs.datanode.{what}address": f"{at.address}:{free_port()}" for what in ("", "http.", "ipc.")}
            options = [word for key, value in own.items() for word in ("-D", f"{key}={value}")]
            started.append(stack.enter_context(_process(log, at, *server, data, *options, env=environment)))

        def ready() -> bool:
            bean = f"http://{at.address}:{ports['http']}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
            with urllib.request.urlopen(bean, timeout=2) as answer:
                beans = json.load(answer)["beans"]
            return any(not info["Safemode"] and len(json.loads(info["LiveNodes"])) == len(disks) for info in beans)

        _wait_until_ready("HDFS", ready, log, *started)
        environment = {"HADOOP_USER_NAME": "pellucid", "HADOOP_CONF_DIR": str(conf)}
        listing = f"http://{at.address}:{ports['http']}/webhdfs/v1"
        pids = [process.pid for process in started]
        yield Service("hdfs", f"{root}/data", environment, lambda: _hdfs_files(listing, "/data"), pids)


def _hdfs_files(service: str, folder: str) -> set[str]:
    """Lists files and folders (`FOLDER/`) below a folder by the name node: blocks leave the disk seconds later."""
    try:
        with urllib.request.urlopen(f"{service}{folder}?op=LISTSTATUS", timeout=60) as answer:
            entries = json.load(answer)["FileStatuses"]["FileStatus"]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return set()
        raise
    found = set()
    for entry in entries:
        path = f"{folder}/{entry['pathSuffix']}"
        if entry["type"] == "DIRECTORY":
            found |= {f"{path}/"} | _hdfs_files(service, path)
        else:
            found.add(path)
    return found


ALL = {"s3s-fs": s3s_fs, "minio": minio, "swift": swift, "hdfs": hdfs}
