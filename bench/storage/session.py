"""Spark, for `bench.storage`: one application that runs what it is told, a JSON document a line.

    PYTHON session.py SETTINGS_FILE

Answers each with a line that begins with RESULT: seconds, rows where there are some, and how long each task of it
took. A program of its own, since only a Python that has PySpark can run it; it imports nothing of the project.
"""

import json
import sys
import time


def word_count(spark, asked: dict) -> list:
    """As the paper's: words, counted, the most frequent ten."""
    from pyspark.sql import functions as f

    words = spark.read.text(asked["text"]).select(f.explode(f.split("value", " ")).alias("word"))
    return words.groupBy("word").count().orderBy(f.desc("count"), "word").limit(10).collect()


def sql(spark, asked: dict) -> list:
    """Queries over Parquet, read as they stand there."""
    for name, paths in asked["tables"].items():
        spark.read.parquet(*paths).createOrReplaceTempView(name)
    return [row for query in asked["queries"] for row in spark.sql(query).collect()]


def write(spark, asked: dict) -> list:
    """Equal records by as many tasks."""
    from pyspark.sql import functions as f

    rows = spark.range(0, asked["records"], numPartitions=asked["tasks"])
    rows.select(f.expr(f"repeat('x', {asked['record']})").alias("value")).write.text(asked["to"])
    return []


def k_means(spark, asked: dict) -> list:
    """MLlib's, on rows that are cached first, from centers that it draws itself."""
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.feature import VectorAssembler

    frame = spark.read.parquet(*asked["points"])
    rows = VectorAssembler(inputCols=frame.columns, outputCol="features").transform(frame).select("features").cache()
    rows.count()
    model = KMeans(k=asked["k"], maxIter=asked["iterations"], tol=0.0, seed=1, initMode="random").fit(rows)
    rows.unpersist(blocking=True)
    return [[len(model.clusterCenters())]]


def delete(spark, path: str) -> None:
    """Removes what an earlier run wrote; not timed."""
    jvm = spark.sparkContext._jvm
    there = jvm.org.apache.hadoop.fs.Path(path)
    there.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).delete(there, True)


def own_copies(spark, copies: dict[str, int]) -> None:
    """Makes stores' clients, which then serve all that is asked of them, ask for as many copies as each is to keep."""
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
        except Exception as error:  # whatever it is, the next one can be asked
            answer = {"error": str(error).splitlines()[0][:300]}
        spark.catalog.clearCache()
        print("RESULT " + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
