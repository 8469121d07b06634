"""Writes Iceberg and Delta tables with Spark, and the rows that Spark reads from each of their versions.

Runs in a Python with PySpark: `lake_jobs.py FOLDER JARS TABLE…`. The tables are in FOLDER, the rows in `FOLDER/rows/TABLE/VERSION`. The
last line of the output has the versions of each table as JSON, the oldest first.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

COLUMNS = (
    "id BIGINT, p INT, s STRING, d DATE, t TIMESTAMP, n DECIMAL(20, 2), f DOUBLE, b BOOLEAN, l ARRAY<INT>, "
    "st STRUCT<x: INT, y: STRING>, m MAP<STRING, INT>"
)
ROWS = (
    "id, CAST(id % 3 AS INT) AS p, IF(id % 7 = 0, NULL, concat('s', id)) AS s, date_add(DATE '2020-01-01', CAST(id % 50 AS INT)) AS d, "
    "timestamp_micros(1577836800000000 + id * 1000001) AS t, CAST(id / 4 AS DECIMAL(20, 2)) AS n, id * 0.5D AS f, id % 2 = 0 AS b, "
    "array(CAST(id AS INT), NULL) AS l, named_struct('x', CAST(id AS INT), 'y', CAST(id AS STRING)) AS st, map('k', CAST(id AS INT)) AS m"
)
MORE = ROWS.replace("id * 0.5D AS f, ", "") + ", concat('extra ', id) AS extra"
# How the tables differ: whether a file of deleted rows belongs to one data file, and the form of checkpoints.
ICEBERG_TABLES, DELTA_TABLES = {"by_file": "file", "by_partition": "partition"}, {"delta_classic": "classic", "delta_v2": "v2"}
# Each element is a version. Old files lack columns, have them under other names and types, and lie in other partitions.
ICEBERG = [
    f"CREATE TABLE ice.n.{{table}} ({COLUMNS}) USING iceberg PARTITIONED BY (p, months(d)) TBLPROPERTIES ('format-version' = '2', "
    "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.delete.granularity' = '{granularity}')",
    f"INSERT INTO ice.n.{{table}} SELECT {ROWS} FROM range(0, 100)",
    f"INSERT INTO ice.n.{{table}} SELECT {ROWS} FROM range(100, 200)",
    "DELETE FROM ice.n.{table} WHERE id % 10 = 3",
    "ALTER TABLE ice.n.{table} RENAME COLUMN s TO word",
    "ALTER TABLE ice.n.{table} DROP COLUMN f",
    "ALTER TABLE ice.n.{table} ADD COLUMN extra STRING",
    "ALTER TABLE ice.n.{table} ALTER COLUMN p TYPE BIGINT",
    "ALTER TABLE ice.n.{table} ADD PARTITION FIELD bucket(4, id)",
    f"INSERT INTO ice.n.{{table}} SELECT {MORE} FROM range(200, 300)",
    "UPDATE ice.n.{table} SET extra = 'changed' WHERE id < 20",
    "DELETE FROM ice.n.{table} WHERE p = 0 AND d < DATE '2020-01-10'",
]
DELTA = [
    f"CREATE TABLE {{table}} ({COLUMNS}) USING delta PARTITIONED BY (p) LOCATION '{{place}}' TBLPROPERTIES ("
    "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name', 'delta.checkpointInterval' = '4', "
    "'delta.checkpointPolicy' = '{policy}')",
    f"INSERT INTO {{table}} SELECT {ROWS} FROM range(0, 100)",
    f"INSERT INTO {{table}} SELECT {ROWS} FROM range(100, 200)",
    "DELETE FROM {table} WHERE id % 10 = 3",
    "ALTER TABLE {table} RENAME COLUMN s TO word",
    "ALTER TABLE {table} DROP COLUMN f",
    "ALTER TABLE {table} ADD COLUMN extra STRING",
    f"INSERT INTO {{table}} SELECT {MORE} FROM range(200, 300)",
    "UPDATE {table} SET extra = 'changed' WHERE id < 20",
    "DELETE FROM {table} WHERE p = 0 AND d < DATE '2020-01-10'",
]


def started(folder: Path, jars: str) -> SparkSession:
    """Starts a session with both kinds of tables."""
    settings = {
        "spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.jars": jars,
        "spark.ui.showConsoleProgress": "false", "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": f"file:{folder}/warehouse",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": f"file:{folder}", "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }  # fmt: skip
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(folder: Path, jars: str, *tables: str) -> None:
    """Writes the tables."""
    spark = started(folder, jars)
    versions: dict[str, list[int]] = {}

    def keep(table: str, version: int, query: str) -> None:
        spark.sql(query).write.parquet(f"file:{folder}/rows/{table}/{version}")
        versions.setdefault(table, []).append(version)

    for table in tables:
        place = f"file:{folder}/{table}"
        for statement in ICEBERG if table in ICEBERG_TABLES else DELTA:
            spark.sql(statement.format(table=table, place=place, granularity=ICEBERG_TABLES.get(table), policy=DELTA_TABLES.get(table)))
        if table in DELTA_TABLES:
            for version in sorted(row["version"] for row in spark.sql(f"DESCRIBE HISTORY {table}").collect()):
                keep(table, version, f"SELECT * FROM {table} VERSION AS OF {version}")
            continue
        for (snapshot,) in spark.sql(f"SELECT snapshot_id FROM ice.n.{table}.snapshots ORDER BY committed_at").collect():
            keep(table, snapshot, f"SELECT * FROM ice.n.{table} VERSION AS OF {snapshot}")
    spark.stop()
    print(json.dumps(versions))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
