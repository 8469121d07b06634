"""Runs SQL and RDDs on an executor, so that Spark loads the classes that most applications need. `spark.archive` keeps them."""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local-cluster[1,1,1024]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(1000).selectExpr("id", "id % 7 AS k", "CAST(id AS STRING) AS s", "CAST(id AS DECIMAL(10, 2)) AS m")
rows.repartition(2).sortWithinPartitions("s").write.parquet(f"{sys.argv[1]}/rows")
spark.read.parquet(f"{sys.argv[1]}/rows").createOrReplaceTempView("t")
spark.sql("SELECT a.k, count(*), sum(a.m) FROM t a JOIN t b ON a.id = b.id WHERE a.s LIKE '1%' GROUP BY a.k ORDER BY a.k NULLS LAST").collect()
spark.sparkContext.parallelize(range(1), 1).barrier().mapPartitions(lambda numbers: [sum(numbers)]).collect()
spark.stop()
