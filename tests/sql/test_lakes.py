"""Delta and Iceberg tables, written by other programs, against the programs' own readers."""

import datetime
import decimal
import json
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg import manifest as manifests
from pyiceberg import transforms
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from harness import binary
from harness.sql import breadth

QUESTIONS = [
    "SELECT count(*), sum(id), count(s), max(s), min(d), CAST(max(t) AS TIMESTAMP), sum(n), sum(f), count(*) FILTER (WHERE b) FROM t",
    "SELECT id, p, s, d, CAST(t AS TIMESTAMP) AS t, n, b FROM t",
    "SELECT id, l[1], l[2], st.x, st.y.z, m['k'] FROM t",
    "SELECT count(*), sum(id) FROM t WHERE id >= 150 AND id < 250",
    "SELECT count(*), sum(id) FROM t WHERE p = 1",
    "SELECT count(*), sum(id) FROM t WHERE d BETWEEN DATE '2020-01-20' AND DATE '2020-02-03'",
    "SELECT count(*), sum(id) FROM t WHERE t > TIMESTAMPTZ '2020-01-01 00:03:20.000200+00'",
    "SELECT count(*), sum(id) FROM t WHERE s = 's00203' OR s IS NULL",
    "SELECT count(*), sum(id) FROM t WHERE n > 60.25 AND f < 140",
    "SELECT p, count(*) AS n FROM t WHERE b GROUP BY p ORDER BY p, n",
    "SELECT count(*) FROM t a JOIN t b ON a.id = b.id + 1",
]


def rows(begin: int, end: int) -> pa.Table:
    """A table with a column of every common type."""
    ids = range(begin, end)
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "p": pa.array([i % 3 for i in ids], pa.int32()),
        "s": pa.array([None if i % 7 == 0 else f"s{i:05d}" for i in ids], pa.string()),
        "d": pa.array([start.date() + datetime.timedelta(days=i % 50) for i in ids]),
        "t": pa.array([start + datetime.timedelta(seconds=i, microseconds=i + 1) for i in ids], pa.timestamp("us", "UTC")),
        "n": pa.array([decimal.Decimal(i) / 4 for i in ids], pa.decimal128(20, 2)),
        "f": pa.array([i * 0.5 for i in ids], pa.float64()),
        "b": pa.array([i % 2 == 0 for i in ids]),
        "l": pa.array([[i, i + 1] for i in ids], pa.list_(pa.int32())),
        "st": pa.array(
            [{"x": i, "y": {"z": str(i)}} for i in ids],
            pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))]),
        ),
        "m": pa.array([[("k", i)] for i in ids], pa.map_(pa.string(), pa.int32())),
    }
    return pa.table(columns)


def check(expected: pa.Table, place: Path, questions: list[str] = QUESTIONS) -> None:
    """Compares the answers about the table at a place with those about its rows in DuckDB."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("t", expected)
    assert breadth.differences(connection, questions, "--table", f"t={place}") == []


def refusal(statement: str) -> str:
    """Returns the error of a statement."""
    ran = binary.run("sql", statement)
    assert ran.code != 0, ran.out
    return ran.err


def count(place: str) -> list[list]:
    return breadth.rows(f"SELECT count(*) FROM {place}")


# Delta Lake


@pytest.mark.parametrize("partitions", [[], ["p"], ["d", "b"]])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_delta_tables_have_the_rows_of_their_own_reader(tmp_path, partitions, checkpoint):
    for begin in (0, 100, 200):
        write_deltalake(tmp_path, rows(begin, begin + 100), mode="append", partition_by=partitions or None)
    table = DeltaTable(tmp_path)
    table.delete("id % 10 = 3")
    if checkpoint:
        table.create_checkpoint()
    write_deltalake(tmp_path, rows(300, 320), mode="append")
    check(DeltaTable(tmp_path).to_pyarrow_table(), tmp_path)


def test_delta_version_is_read(tmp_path):
    for begin in (0, 100, 200):
        write_deltalake(tmp_path, rows(begin, begin + 100), mode="append")
    assert count(f"delta_scan('{tmp_path}', version => 1)") == [[200]]
    assert count(f"delta_scan('{tmp_path}')") == [[300]]
    assert "the newest is 2" in refusal(f"FROM delta_scan('{tmp_path}', version => 3)")
    assert "write it like" in refusal(f"FROM delta_scan('{tmp_path}', file => 3)")


def test_delta_partition_values_are_decoded(tmp_path):
    values = ["a b", "c/d", "e%20f", "ü=x", None, "x'y"]
    write_deltalake(tmp_path, pa.table({"k": values, "v": range(6)}), partition_by=["k"])
    assert breadth.rows(f"SELECT k FROM '{tmp_path}' ORDER BY v") == [[value] for value in values]
    day = datetime.date(2020, 1, 2)
    hour = datetime.datetime(2020, 1, 1, 5, 30, tzinfo=datetime.UTC)
    stamp = pa.array([hour], pa.timestamp("us", "UTC"))
    keys = {"d": pa.array([day]), "t": stamp, "b": [True], "n": pa.array([decimal.Decimal("1.5")]), "v": [1]}
    write_deltalake(tmp_path / "typed", pa.table(keys), partition_by=["d", "t", "b", "n"])
    check(
        pa.table(keys),
        tmp_path / "typed",
        ["SELECT d, CAST(t AS TIMESTAMP) AS t, b, n, v FROM t", "SELECT count(*) FROM t WHERE d > DATE '2020-01-01' AND b"],
    )


def test_delta_columns_that_were_added_are_null_in_older_files(tmp_path):
    write_deltalake(tmp_path, rows(0, 10).select(["id", "s"]))
    write_deltalake(tmp_path, rows(10, 20).select(["id", "f"]), mode="append", schema_mode="merge")
    check(DeltaTable(tmp_path).to_pyarrow_table(), tmp_path, ["SELECT id, s, f FROM t ORDER BY id", "SELECT count(*) FROM t WHERE f IS NULL"])


def without(folder: Path, pattern: str) -> int:
    """Removes the files that match; returns their number."""
    found = list(folder.rglob(pattern))
    for path in found:
        path.unlink()
    return len(found)


def test_pruned_and_unreferenced_files_are_not_read(tmp_path):
    table = tmp_path / "t"
    for begin in (0, 100, 200):
        write_deltalake(table, rows(begin, begin + 100), mode="append", partition_by=["p"])
    shutil.copy(next(table.glob("p=1/*.parquet")), table / "p=1" / "stray.parquet")
    assert count(f"'{table}'") == [[300]]
    # By the partition.
    assert without(table, "p=2/*.parquet") == 3
    assert count(f"'{table}' WHERE p < 2") == [[200]]
    assert breadth.rows(f"SELECT sum(id) FROM '{table}' WHERE p = 1") == [[sum(i for i in range(300) if i % 3 == 1)]]
    assert "p=2" in refusal(f"SELECT sum(id) FROM '{table}'")
    # By the bounds: the rest of the newest commit.
    kept = {add["path"] for add in actions(table, 2, "add") if "p=2" not in add["path"]}
    for path in table.glob("p=*/*.parquet"):
        if str(path.relative_to(table)) not in kept:
            path.unlink()
    assert breadth.rows(f"SELECT min(id), max(id) FROM '{table}' WHERE id >= 200 AND p <> 2") == [[201, 298]]
    assert breadth.rows(f"SELECT count(*) FROM '{table}' WHERE id >= 210 AND p = 1") == [[30]]


def log_file(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def actions(table: Path, version: int, kind: str) -> list[dict]:
    """Returns the actions of a kind in a commit."""
    lines = [json.loads(line) for line in log_file(table, version).read_text().splitlines()]
    return [line[kind] for line in lines if kind in line]


def commit(table: Path, version: int, *lines: dict) -> None:
    log_file(table, version).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_delta_deletion_vectors_are_applied(tmp_path):
    write_deltalake(tmp_path, rows(0, 100))
    (add,) = actions(tmp_path, 0, "add")
    # The example of the specification: rows 3, 4, 7, 11, 18 and 29.
    vector = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40, "cardinality": 6}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    commit(tmp_path, 1, {"protocol": protocol}, {"remove": {"path": add["path"], "dataChange": True}}, {"add": add | {"deletionVector": vector}})
    kept = [i for i in range(100) if i not in (3, 4, 7, 11, 18, 29)]
    check(rows(0, 100).take(kept), tmp_path)
    assert breadth.rows(f"SELECT id FROM '{tmp_path}' LIMIT 5") == [[0], [1], [2], [5], [6]]
    assert count(f"(SELECT id FROM '{tmp_path}' LIMIT 94)") == [[94]]
    # Later commits remove the file with its vector.
    commit(tmp_path, 2, {"remove": {"path": add["path"], "deletionVector": vector, "dataChange": True}})
    assert count(f"'{tmp_path}'") == [[0]]
    damaged = vector | {"cardinality": 7}
    commit(tmp_path, 3, {"add": add | {"deletionVector": damaged}})
    assert "deletion vector is damaged" in refusal(f"SELECT sum(id) FROM '{tmp_path}'")


def test_delta_columns_are_mapped_by_name(tmp_path):
    """A table whose columns were renamed: files keep the names that the metadata calls physical."""
    write_deltalake(tmp_path, rows(0, 90), partition_by=["p"])
    (metadata,) = actions(tmp_path, 0, "metaData")
    schema = json.loads(metadata["schemaString"])

    def mapped(fields: list[dict]) -> None:
        for field in fields:
            field["metadata"] |= {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": field["name"]}
            field["name"] = "new_" + field["name"]
            if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
                mapped(field["type"]["fields"])

    mapped(schema["fields"])
    metadata |= {"schemaString": json.dumps(schema), "configuration": {"delta.columnMapping.mode": "name"}, "partitionColumns": ["new_p"]}
    commit(tmp_path, 1, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata})
    found = breadth.rows(f"SELECT new_id, new_p, new_s, new_st.new_y.new_z FROM '{tmp_path}' WHERE new_id > 86 AND new_p <> 1 ORDER BY new_id")
    assert found == [[87, 0, "s00087", "87"], [89, 2, "s00089", "89"]]
    columns = binary.result(binary.sql(f"SELECT * FROM '{tmp_path}' LIMIT 1")).columns
    assert columns == ["new_" + name for name in rows(0, 1).column_names]


@pytest.mark.parametrize(
    "change,why",
    [
        ({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["variantType"]}}, "`variantType`"),
        ({"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}, "reader version 9"),
        ({"add": {"path": "s3://elsewhere/x.parquet", "partitionValues": {}, "size": 1}}, "another store"),
    ],
)
def test_delta_tables_that_cannot_be_read_are_refused(tmp_path, change, why):
    write_deltalake(tmp_path, rows(0, 10))
    commit(tmp_path, 1, change)
    assert why in (error := refusal(f"SELECT count(*) FROM '{tmp_path}'")) and str(tmp_path) in error, error


def test_delta_log_must_be_complete(tmp_path):
    for begin in (0, 10, 20):
        write_deltalake(tmp_path, rows(begin, begin + 10), mode="append")
    commit(tmp_path, 3)
    log_file(tmp_path, 3).write_text('{"add": {"path": \n')
    assert "line 1 of" in refusal(f"FROM '{tmp_path}'")
    log_file(tmp_path, 3).unlink()
    log_file(tmp_path, 1).unlink()
    assert "lacks version 1" in refusal(f"FROM '{tmp_path}'")


def test_raw_files_of_tables_are_not_read(tmp_path):
    table = tmp_path / "t"
    write_deltalake(table, rows(0, 30), partition_by=["p"])
    for place in (f"{table}/*/*.parquet", f"{table}/p=1/*.parquet", f"{table}/p=1/", f"{tmp_path}/", f"{tmp_path}/*/p=1/*.parquet"):
        assert f"{table} is a Delta table" in refusal(f"SELECT count(*) FROM '{place}'"), place
    create = f"CREATE EXTERNAL TABLE e {{}} STORED AS {{}} LOCATION '{table}'"
    for kind in ("PARQUET", "DELTA"):
        assert breadth.rows(f"{create.format('', kind)}; SELECT count(*) FROM e") == [[30]]
    assert "own columns" in refusal(create.format("(id BIGINT)", "PARQUET"))
    assert "own columns" in refusal(create.format("", "CSV"))
    assert "only reads" in refusal(f"{create.format('', 'PARQUET')}; INSERT INTO e SELECT * FROM e")
    assert "not empty" in refusal(f"COPY (SELECT 1 AS x) TO '{table}/' STORED AS PARQUET")
    # The log itself, and one file, are read as they are.
    assert count(f"'{table}/_delta_log/*.json'")[0][0] > 2
    assert count(f"'{next(table.glob('p=1/*.parquet'))}'") == [[10]]


# Iceberg


@pytest.fixture
def catalog(tmp_path):
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    return catalog


def iceberg(catalog, partitions=(), version=2):
    """Creates a table that is partitioned by (column, transform)."""
    table = catalog.create_table("n.t", schema=rows(0, 9).schema, properties={"format-version": str(version)})
    if partitions:
        with table.update_spec() as update:
            for column, transform in partitions:
                update.add_field(column, transform, f"{column}_part")
    return table


PARTITIONS = {
    "none": [],
    "identity": [("p", transforms.IdentityTransform()), ("b", transforms.IdentityTransform())],
    "text": [("s", transforms.TruncateTransform(5))],
    "month": [("d", transforms.MonthTransform())],
    "year": [("d", transforms.YearTransform())],
    "day": [("t", transforms.DayTransform())],
    "hour": [("t", transforms.HourTransform())],
    "bucket": [("id", transforms.BucketTransform(4))],
    "truncate": [("id", transforms.TruncateTransform(50))],
}


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_iceberg_tables_have_the_rows_of_their_own_reader(catalog, tmp_path, partitions):
    table = iceberg(catalog, PARTITIONS[partitions])
    for begin in (0, 100, 5000):
        table.append(rows(begin, begin + 150))
    table.delete("id >= 120 and id < 140")
    check(table.scan().to_arrow(), tmp_path / "n" / "t")


def test_iceberg_tables_of_version_1_are_read(catalog, tmp_path):
    table = iceberg(catalog, PARTITIONS["identity"], version=1)
    table.append(rows(0, 200))
    table.append(rows(200, 300))
    check(table.scan().to_arrow(), tmp_path / "n" / "t")


def test_iceberg_columns_keep_their_ids(catalog, tmp_path):
    table = iceberg(catalog)
    table.append(rows(0, 10))
    with table.update_schema() as update:
        update.rename_column("s", "word")
        update.delete_column("f")
        update.add_column("f", StringType())
        update.rename_column(("st", "x"), "renamed")
        update.add_column(("st", "added"), LongType())
        update.update_column("p", LongType())
    table = catalog.load_table("n.t")
    more = rows(10, 20)
    struct = [{"renamed": i, "y": {"z": "q"}, "added": i} for i in range(10, 20)]
    columns = {name: more[name] for name in ("id", "d", "t", "n", "b", "l", "m")}
    columns |= {"word": more["s"], "p": more["p"].cast(pa.int64()), "f": pa.array(["new"] * 10)}
    columns["st"] = pa.array(struct, pa.struct([("renamed", pa.int32()), ("y", pa.struct([("z", pa.string())])), ("added", pa.int64())]))
    table.append(pa.table(columns))
    questions = [
        "SELECT id, word, f, p, st.renamed, st.y.z, st.added FROM t ORDER BY id",
        "SELECT count(*) FROM t WHERE f IS NULL AND st.added IS NULL",
        "SELECT sum(id) FROM t WHERE word > 's00008' AND p = 1",
    ]
    check(table.scan().to_arrow(), tmp_path / "n" / "t", questions)


def test_iceberg_snapshots_and_moved_tables_are_read(catalog, tmp_path):
    table = iceberg(catalog)
    assert count(f"'{tmp_path}/n/t'") == [[0]]
    table.append(rows(0, 100))
    first = table.current_snapshot().snapshot_id
    table.append(rows(100, 200))
    assert count(f"iceberg_scan('{tmp_path}/n/t', snapshot_from_id => {first})") == [[100]]
    assert "no snapshot 5" in refusal(f"FROM iceberg_scan('{tmp_path}/n/t', snapshot_from_id => 5)")
    shutil.move(tmp_path / "n", tmp_path / "moved")
    moved = tmp_path / "moved" / "t"
    assert breadth.rows(f"SELECT count(*), sum(id) FROM '{moved}'") == [[200, sum(range(200))]]
    names = sorted((moved / "metadata").glob("*.metadata.json"))
    assert count(f"'{names[1]}'") == [[100]]
    (moved / "metadata" / "version-hint.text").write_text(names[1].name)
    assert count(f"'{moved}'") == [[100]]
    assert "is an Iceberg table" in refusal(f"FROM '{moved}/data/*.parquet'")
    assert "is an Iceberg table" in refusal(f"FROM '{moved}/data/'")


def test_iceberg_pruned_files_are_not_read(catalog, tmp_path):
    table = iceberg(catalog, [("d", transforms.MonthTransform())])
    for begin in (0, 1000):
        table.append(rows(begin, begin + 100))
    place = tmp_path / "n" / "t"
    assert without(place, "d_part=2020-02/*.parquet") == 2
    assert count(f"'{place}' WHERE d < DATE '2020-02-01'") == [[124]]
    assert breadth.rows(f"SELECT sum(1) FROM '{place}' WHERE d <= DATE '2020-01-31' AND id >= 1000") == [[62]]
    assert breadth.rows(f"SELECT max(id) FROM '{place}' WHERE id > 5000") == [[None]]
    assert refusal(f"SELECT sum(id) FROM '{place}'")


class Deletes(manifests.ManifestWriterV2):
    """Writes a manifest of delete files."""

    def content(self) -> manifests.ManifestContent:
        return manifests.ManifestContent.DELETES

    @property
    def _meta(self) -> dict:
        return super()._meta | {"content": "deletes"}


def add_deletes(table, content, deleted: pa.Table, equality_ids=None) -> Path:
    """Adds a delete file to the table as a new snapshot; returns the metadata file."""
    folder = Path(table.location().removeprefix("file://"))
    snapshot, io = table.current_snapshot(), table.io
    path = f"{table.location()}/data/deletes-{content.name}-{snapshot.snapshot_id}.parquet"
    pq.write_table(deleted, path.removeprefix("file://"))
    file = manifests.DataFile.from_args(
        content=content, file_path=path, file_format=manifests.FileFormat.PARQUET, partition=Record(),
        record_count=deleted.num_rows, file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
        equality_ids=equality_ids, spec_id=0,
    )  # fmt: skip
    number, sequence = snapshot.snapshot_id + 1, snapshot.sequence_number + 1
    output = io.new_output(f"{table.location()}/metadata/{number}-m0.avro")
    with Deletes(table.spec(), table.schema(), output, number, "deflate") as writer:
        entry = manifests.ManifestEntry.from_args(status=manifests.ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file)
        writer.add_entry(entry)
    new = writer.to_manifest_file()
    listed = f"{table.location()}/metadata/snap-{number}.avro"
    with manifests.write_manifest_list(2, io.new_output(listed), number, snapshot.snapshot_id, sequence, "deflate") as writer:
        writer.add_manifests([*snapshot.manifests(io), new])
    last = sorted((folder / "metadata").glob("*.metadata.json"))[-1]
    metadata = json.loads(last.read_text())
    metadata["snapshots"].append(metadata["snapshots"][-1] | {"snapshot-id": number, "sequence-number": sequence, "manifest-list": listed})
    metadata |= {"current-snapshot-id": number, "last-sequence-number": sequence}
    metadata["refs"]["main"]["snapshot-id"] = number
    written = folder / "metadata" / f"{int(last.name[:5]) + 1:05}-x.metadata.json"
    written.write_text(json.dumps(metadata))
    return written


def test_iceberg_position_deletes_are_applied(catalog, tmp_path):
    table = iceberg(catalog)
    table.append(rows(0, 100))
    table.append(rows(100, 200))
    place = tmp_path / "n" / "t"
    for file in [task.file for task in table.scan().plan_files()][:1]:
        deleted = pa.table({"file_path": [file.file_path] * 4, "pos": pa.array([0, 3, 50, 99], pa.int64())})
        metadata = add_deletes(table, manifests.DataFileContent.POSITION_DELETES, deleted)
    expected = StaticTable.from_metadata(str(metadata)).scan().to_arrow()
    assert expected.num_rows == 196
    check(expected, place)
    assert count(f"(SELECT id FROM '{place}' LIMIT 196)") == [[196]]


def test_iceberg_tables_that_cannot_be_read_are_refused(catalog, tmp_path):
    table = iceberg(catalog)
    table.append(rows(0, 10))
    metadata = next(iter(sorted((tmp_path / "n" / "t" / "metadata").glob("00001*.json"))))
    metadata.write_text(metadata.read_text().replace('"format-version":2', '"format-version":3'))
    assert "version 3 of the Iceberg format" in refusal(f"FROM '{tmp_path}/n/t'")
    metadata.write_text("{")
    assert "is damaged" in refusal(f"FROM '{tmp_path}/n/t'")
    (tmp_path / "n" / "t" / "metadata" / "00001-other.metadata.json").write_text("{}")
    assert "cannot tell which metadata is the newest" in refusal(f"FROM '{tmp_path}/n/t'")
