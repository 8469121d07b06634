"""Errors of the Python package are located, and exceptions and Ctrl-C end a job."""

import signal
import threading

import numpy as np
import pytest

from harness import binary


def test_kernel_error_names_kernel_and_partition(pellucid):
    def plain(rows, out):
        if rows[0] == 6:
            raise ValueError("six is too much")

    @pellucid.kernel
    def compiled(rows, out):
        if rows[0] == 6:
            raise ValueError("six is too much")

    for kernel, name in ((plain, "plain"), (compiled, "compiled")):
        program = pellucid.Program("raises")
        rows, out = program.array("rows", np.arange(9), 9), program.zeros("out", 1, 9)
        program.transform(kernel, reads=[rows], writes=[out])
        with pytest.raises(pellucid.KernelError, match="ValueError: six is too much") as raised:
            program.run()
        assert (raised.value.kernel, raised.value.partition) == (name, 6)
        assert isinstance(raised.value, pellucid.Error)
        assert "test_python_errors.py, line" in str(raised.value)


def test_invalid_programs_are_refused(pellucid):
    program, other = pellucid.Program("a"), pellucid.Program("b")
    one, four = program.zeros("one", 2), program.zeros("four", 2, 4)
    foreign = other.zeros("foreign", 2)
    many = [program.zeros(f"d{number}", 2) for number in range(9)]
    wrong = pellucid.ProgramError

    def nothing(*_):
        pass

    for text, call in [
        ("of another program", lambda: program.transform(nothing, reads=[foreign], writes=[one])),
        ("'one' with 1 partitions and 'four' with 4", lambda: program.transform(nothing, reads=[one], writes=[four])),
        ("at most 8 datasets", lambda: program.transform(nothing, reads=many, writes=[one])),
        ("needs a dataset with one partition", lambda: program.broadcast(four, one)),
        ("they must match", lambda: program.broadcast(program.zeros("three", 3), four)),
        ('unknown reduction "mean"', lambda: program.reduce(four, one, "mean")),
        ("cannot divide 4 rows into 5", lambda: program.array("few", np.arange(4), 5)),
        ("has no partition", lambda: program.arrays("none", [])),
        ("cannot be partitions", lambda: program.array("text", np.array(["a"]))),
        ("does not compile", lambda: program.transform(pellucid.kernel(lambda a: a.nothing()), writes=[one])),
        ("0 iterations", lambda: program.loop(0).__enter__()),
        ("has no stage", other.run),
        ("iterations; use at least 1", lambda: program.loop(1 << 64).__enter__()),
        ("workers=-1", lambda: other.run(workers=-1)),
        ("snapshot_every=0", lambda: other.run(snapshot_every=0)),
        ("wait_limit_s=-1", lambda: other.run(wait_limit_s=-1)),
    ]:
        with pytest.raises(wrong, match=text):
            call()
    twice = pellucid.Program("twice")
    same = twice.zeros("same", 1)
    twice.transform(nothing, reads=[same], writes=[same])
    with pytest.raises(wrong, match='names dataset "same" twice'):
        twice.run()


def test_invalid_exchanges_are_reported(pellucid):
    program = pellucid.Program("wrong")
    two, three = program.zeros("two", 1, 2), program.zeros("three", 1, 3)

    def twice(two, out):
        out.send(1, two)
        out.send(1, two)

    def astray(two, out):
        out.send(7, two)

    def text(two, out):
        out.send(0, np.array(["a"]))

    def fails(three, arrived):
        raise ValueError(f"{len(arrived)} arrived")

    def ignore(three, arrived):
        pass

    def silent(two, out):
        pass

    for scatter, gather, stage, expected in [
        (twice, ignore, "twice: scatter", "cannot send to partition 1 twice"),
        (astray, ignore, "astray: scatter", "partition 7: it is not on the route"),
        (text, ignore, "text: scatter", "cannot be partitions"),
        (silent, fails, "silent: gather", "ValueError: 0 arrived"),
    ]:
        wrong = pellucid.Program("wrong")
        two, three = wrong.zeros("two", 1, 2), wrong.zeros("three", 1, 3)
        wrong.exchange(scatter, gather, sources=[two], writes=[three])
        with pytest.raises(pellucid.KernelError, match=expected) as raised:
            wrong.run()
        assert raised.value.kernel == stage
    for expected, options in [
        ("writes no dataset", {"sources": [two], "reads": [three], "writes": []}),
        ("names no dataset", {"sources": [], "writes": [three]}),
        ("of another program", {"sources": [program.zeros("own", 1)], "writes": [three]}),
    ]:
        with pytest.raises(pellucid.ProgramError, match=expected):
            wrong.exchange(silent, ignore, **options)
    with pytest.raises(pellucid.ProgramError, match="is a compiled kernel, which cannot send"):
        wrong.exchange(pellucid.kernel(silent), ignore, sources=[two], writes=[three])
    for routes, expected in [([[0], [3]], "partition 3 is out of range; there are 3"), ([[0]], "1 routes for 2 partitions")]:
        routed = pellucid.Program("routed")
        two, three = routed.zeros("two", 1, 2), routed.zeros("three", 1, 3)
        routed.exchange(silent, ignore, sources=[two], writes=[three], routes=routes)
        with pytest.raises(pellucid.ProgramError, match=expected):
            routed.run()


def test_exception_in_progress_ends_the_job(pellucid):
    program = pellucid.Program("progress")
    one = program.zeros("one", 1)

    def add(one):
        one += 1

    with program.loop(1 << 60):
        program.transform(add, writes=[one])

    def refuse(now):
        assert threading.current_thread() is threading.main_thread()
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        program.run(progress=refuse)


def test_ctrl_c_ends_an_endless_job(script):
    """Ctrl-C ends a job in an endless loop of Python kernels."""
    process = script(
        """
        import pellucid
        program = pellucid.Program("endless")
        one = program.zeros("one", 1)
        def add(one): one += 1
        with program.loop(1 << 60):
            program.transform(add, writes=[one])
        program.run(progress=lambda now: print(now["iteration"], flush=True))
        """,
    )
    for line in process.stdout:
        if int(line) > 100:
            break
    code, _, err = binary.kill(process, signal.SIGINT)
    assert code in (1, -signal.SIGINT, 130) and "KeyboardInterrupt" in err
