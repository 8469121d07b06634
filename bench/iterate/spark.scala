// Peers on Spark, for its own shell: `spark-shell -i spark.scala` with what to run in BENCH_ITERATE:
// "APPLICATION|PEER|DATA|ITERATIONS|PARTITIONS". Prints a line that begins with RESULT and holds the JSON document that
// bench/iterate/peers.py describes. Data are cached before anything is timed, and the first iterations,
// while the JVM compiles, are left out.
import org.apache.spark.sql.functions._

val Array(application, peer, data, count, partitions) = sys.env("BENCH_ITERATE").split('|')
val iterations = count.toInt
val warm = 3
val parts = partitions.toInt

def timed(step: Int => Unit, times: Int): Seq[Double] = (0 until times).map { i =>
  val start = System.nanoTime; step(i); (System.nanoTime - start) / 1e9
}
def result(times: Seq[Double], check: Double): Unit =
  println("RESULT {\"iteration_s\": [" + times.mkString(", ") + "], \"check\": " + check + "}")

// Rows of a partition in one array, label last: the layout of hand-tuned code.
def blocks(label: Boolean) = {
  val frame = spark.read.parquet(data).repartition(parts)
  val names = frame.columns.filter(_ != "y") ++ (if (label) Seq("y") else Nil)
  val rows = frame.select(names.map(name => col(name).cast("double")).toIndexedSeq: _*).rdd
  val width = names.length
  val cached = rows.mapPartitions { rows =>
    val all = rows.map(row => Array.tabulate(width)(row.getDouble)).toArray
    val flat = new Array[Double](all.length * width)
    for (i <- all.indices) System.arraycopy(all(i), 0, flat, i * width, width)
    Iterator(flat)
  }.cache()
  cached.count()
  (cached, width)
}

def handTuned(): Unit = {
  val (rows, width) = blocks(true)
  val d = width - 1
  val n = rows.map(_.length.toLong / width).sum()
  val w = new Array[Double](d + 1)
  var loss = 0.0
  def step(i: Int): Unit = {
    val sent = sc.broadcast(w.clone)
    val sums = rows.mapPartitions { flats =>
      val w = sent.value
      val g = new Array[Double](d + 2)
      for (x <- flats) {
        var at = 0
        while (at < x.length) {
          var z = w(d)
          var j = 0
          while (j < d) { z += w(j) * x(at + j); j += 1 }
          val t = math.exp(-math.abs(z))
          val y = x(at + d)
          val residual = (if (z >= 0) 1.0 else t) / (1.0 + t) - y
          j = 0
          while (j < d) { g(j) += residual * x(at + j); j += 1 }
          g(d) += residual
          g(d + 1) += math.max(z, 0.0) - y * z + math.log1p(t)
          at += width
        }
      }
      Iterator(g)
    }.reduce((a, b) => { var j = 0; while (j < a.length) { a(j) += b(j); j += 1 }; a })
    loss = (sums(d + 1) + 0.5 * w.take(d).map(v => v * v).sum) / n
    for (j <- 0 to d) w(j) -= 0.5 * (sums(j) + (if (j < d) w(j) else 0.0)) / n
  }
  val times = timed(step, iterations + warm)
  result(times.drop(warm), loss)
}

def vectors(label: Boolean) = {
  val frame = spark.read.parquet(data).repartition(parts)
  val assembler = new org.apache.spark.ml.feature.VectorAssembler()
    .setInputCols(frame.columns.filter(_ != "y")).setOutputCol("features")
  val ready = assembler.transform(frame).select("features", (if (label) Seq("y") else Nil): _*).cache()
  ready.count()
  ready
}

// The difference between long and short fits: what is done once drops out.
def perIteration(fit: Int => Unit): Double = {
  fit(2)
  val Seq(short) = timed(_ => fit(2), 1)
  val Seq(long) = timed(_ => fit(2 + iterations), 1)
  (long - short) / iterations
}

application + "/" + peer match {
  case "regression/Spark, hand-tuned" => handTuned()
  case "regression/Spark MLlib" =>
    val frame = vectors(true)
    var loss = 0.0
    def fit(most: Int): Unit = {
      val model = new org.apache.spark.ml.classification.LogisticRegression().setLabelCol("y").setTol(1e-300)
        .setStandardization(false).setRegParam(1.0 / frame.count()).setMaxIter(most).fit(frame)
      loss = model.summary.objectiveHistory.last
    }
    result(Seq(perIteration(fit)), loss)
  case "kmeans/Spark MLlib" =>
    val frame = vectors(false)
    var cost = 0.0
    def fit(most: Int): Unit = {
      val model = new org.apache.spark.ml.clustering.KMeans().setK(10).setSeed(1).setTol(0.0)
        .setInitMode("random").setMaxIter(most).fit(frame)
      cost = model.summary.trainingCost
    }
    result(Seq(perIteration(fit)), cost)
  case "pagerank/GraphX" =>
    val edges = spark.read.parquet(data).select(col("src").cast("long"), col("dst").cast("long")).rdd
      .map(row => org.apache.spark.graphx.Edge(row.getLong(0), row.getLong(1), 1))
    val graph = org.apache.spark.graphx.Graph.fromEdges(edges, 1)
      .partitionBy(org.apache.spark.graphx.PartitionStrategy.EdgePartition2D, parts).cache()
    graph.edges.count()
    var top = 0.0
    def run(most: Int): Unit = {
      val ranks = graph.staticPageRank(most).vertices
      val sum = ranks.values.sum()
      top = ranks.values.top(10).sum / sum
    }
    result(Seq(perIteration(run)), top)
}
System.exit(0)
