"""The Spark application of `bench.storage`, which runs requests, one JSON document per line.

    PYTHON session.py SETTINGS_FILE

It answers each with a line that starts with RESULT: seconds and rows, or an error. It runs in a Python that has PySpark,
so it imports nothing of the project.
"""

import json
import sys
import time


def word_count(spark, asked: dict) -> list:
    """Counts words, and returns the ten most frequent, as in the paper."""
    from pyspark.sql import functions as f

    words = spark.read.text(asked["text"]).select(f.explode(f.split("value", " ")).alias("word"))
    return words.groupBy("word").count().orderBy(f.desc("count"), "word").limit(10).collect()


def sql(spark, asked: dict) -> list:
    """Runs queries over Parquet files."""
    for name, paths in asked["tables"].items():
        spark.read.parquet(*paths).createOrReplaceTempView(name)
    return [row for query in asked["queries"] for row in spark.sql(query).collect()]


def write(spark, asked: dict) -> list:
    """Writes equal records, with a given number of tasks."""
    from pyspark.sql import functions as f

    rows = spark.range(0, asked["records"], numPartitions=asked["tasks"])
    rows.select(f.expr(f"repeat('x', {asked['record']})").alias("value")).write.text(asked["to"])
    return []


def k_means(spark, asked: dict) -> list:
    """Runs MLlib's k-means on cached rows, from random centers."""
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.feature import VectorAssembler

    frame = spark.read.parquet(*asked["points"])
    rows = VectorAssembler(inputCols=frame.columns, outputCol="features").transform(frame).select("features").cache()
    rows.count()
    model = KMeans(k=asked["k"], maxIter=asked["iterations"], tol=0.0, seed=1, initMode="random").fit(rows)
    rows.unpersist(blocking=True)
    return [[len(model.clusterCenters())]]


def delete(spark, path: str) -> None:
    """Removes an earlier run's output; not timed."""
    jvm = spark.sparkContext._jvm
    there = jvm.org.apache.hadoop.fs.Path(path)
    there.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).delete(there, True)


def own_copies(spark, copies: dict[str, int]) -> None:
    """Creates the stores' cached clients with the number of copies that each store should keep."""
    hadoop, common = spark.sparkContext._jvm.org.apache.hadoop, spark.sparkContext._jsc.hadoopConfiguration()
    for url, wanted in copies.items():
        own = hadoop.conf.Configuration(common)
        own.setInt("dfs.replication", wanted)
        hadoop.fs.Path(url).getFileSystem(own)


DO = {"word count": word_count, "sql": sql, "write": write, "k-means": k_means}


def main() -> None:
    from pyspark.sql import SparkSession

    with open(sys.argv[1]) as file:
        given = json.load(file)
    builder = SparkSession.builder
    for key, value in given["settings"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    own_copies(spark, given["copies"])
    print("RESULT " + json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "to" in asked:
                delete(spark, asked["to"])
            begun = time.monotonic()
            rows = DO[asked["do"]](spark, asked)
            answer = {"s": time.monotonic() - begun, "rows": len(rows)}
        except Exception as error:  # later requests can still run
            answer = {"error": str(error).splitlines()[0][:300]}
        spark.catalog.clearCache()
        print("RESULT " + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
