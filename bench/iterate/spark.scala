// Peers on Spark, run by `spark-shell -i spark.scala` with BENCH_ITERATE set to
// "APPLICATION|PEER|DATA|ITERATIONS|PARTITIONS". Prints a line that starts with RESULT and has the JSON document of
// bench/iterate/peers.py with task times, or a line that starts with FAILED.
//
// Each iteration is one job, and all jobs of iterations share a call site. The times between their starts are therefore
// the times of the iterations, without reading, caching or a model's summary. The first iterations, during which the JVM
// compiles, are left out.
import org.apache.spark.scheduler._
import org.apache.spark.sql.functions._
import spark.implicits._

val Array(application, peer, data, count, partitions) = sys.env("BENCH_ITERATE").split('|')
val warm = 3
val parts = partitions.toInt
// An iteration ends when the next one starts, so one more has to start.
val iterations = warm + count.toInt + 1
val cores = sc.defaultParallelism

// Call site, start and stages of each job; stage, start and end of each task. Times are in ms.
val jobs = scala.collection.mutable.ArrayBuffer[(String, Long, Set[Int])]()
val tasks = scala.collection.mutable.ArrayBuffer[(Int, Long, Long)]()
val stages = scala.collection.mutable.Map[Int, String]()
sc.addSparkListener(new SparkListener {
  override def onJobStart(job: SparkListenerJobStart): Unit = {
    job.stageInfos.foreach(stage => stages(stage.stageId) = stage.name)
    jobs += ((job.stageInfos.maxBy(_.stageId).name, job.time, job.stageIds.toSet))
  }
  override def onTaskEnd(task: SparkListenerTaskEnd): Unit =
    tasks += ((task.stageId, task.taskInfo.launchTime, task.taskInfo.finishTime))
})

def at(sorted: Seq[Long], share: Double): Long = sorted(math.min(sorted.length - 1, (sorted.length * share).toInt))

// Makes the document; must run after the listener has received all events.
def document(check: Double): String = {
  val steps = jobs.groupBy(_._1).values.maxBy(_.length).sortBy(_._2).drop(warm).toSeq
  require(steps.length > 1, s"found ${steps.length + warm} jobs with one call site; expected at least ${warm + 2}")
  val times = steps.zip(steps.tail).map { case (step, next) => (next._2 - step._2) / 1e3 }
  val (from, until) = (steps.head._2, steps.last._2)
  val own = steps.init.flatMap(_._3).toSet
  val ran = tasks.filter { case (stage, began, _) => own(stage) && began >= from && began < until }.toSeq
  val busy = ran.map { case (_, began, ended) => ended - began }.sum.toDouble
  val (stage, most) = ran.groupBy(task => stages(task._1)).maxBy { case (_, some) => some.map(t => t._3 - t._2).sum }
  val sorted = most.map(task => task._3 - task._2).sorted
  val shares = Seq(10, 50, 90, 99).map(p => "\"p" + p + "\": " + at(sorted, p / 100.0)).mkString(", ")
  "{\"iteration_s\": [" + times.mkString(", ") + "], \"check\": " + check +
    ", \"tasks_per_s\": " + ran.length / ((until - from) / 1e3) +
    ", \"outside_tasks\": " + math.max(0.0, 1 - busy / (cores * (until - from))) +
    ", \"stage\": \"" + stage.replace('"', ' ') + "\", \"task_ms\": {" + shares + "}}"
}

// Reads the file in even parts if each has at least four row groups; otherwise repartitions the rows.
def frame = {
  val size = new java.io.File(data).length
  spark.conf.set("spark.sql.files.maxPartitionBytes", ((size + parts - 1) / parts).toString)
  val read = spark.read.parquet(data)
  if (size / parts >= (160L << 20)) read else read.repartition(parts)
}

// Gradient descent over rows in arrays, label last, the layout of hand-tuned code.
def handTuned(): Double = {
  val all = frame
  val names = all.columns.filter(_ != "y") ++ Seq("y")
  val width = names.length
  val d = width - 1
  val rows = all.select(array(names.map(name => col(name).cast("double")).toIndexedSeq: _*)).as[Array[Double]].rdd
    .mapPartitions(_.grouped(1024).map(some => Array.concat(some.toIndexedSeq: _*))).cache()
  val n = rows.map(_.length.toLong / width).fold(0L)(_ + _).toDouble
  val w = new Array[Double](d + 1)
  var loss = 0.0
  for (_ <- 0 until iterations) {
    val sent = sc.broadcast(w.clone)
    val sums = rows.mapPartitions { blocks =>
      val w = sent.value
      val g = new Array[Double](d + 2)
      for (x <- blocks) {
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
  loss
}

// Not cached, since MLlib caches its own form of the data and warns if the input is cached too.
def vectors(label: Boolean) = {
  val all = frame
  val assembler = new org.apache.spark.ml.feature.VectorAssembler()
    .setInputCols(all.columns.filter(_ != "y")).setOutputCol("features")
  assembler.transform(all).select("features", (if (label) Seq("y") else Nil): _*)
}

def regression(): Double = {
  val n = spark.read.parquet(data).count()
  val model = new org.apache.spark.ml.classification.LogisticRegression().setLabelCol("y").setTol(1e-300)
    .setStandardization(false).setRegParam(1.0 / n).setMaxIter(iterations).fit(vectors(true))
  model.summary.objectiveHistory.last
}

def kmeans(): Double = {
  val model = new org.apache.spark.ml.clustering.KMeans().setK(10).setSeed(1).setTol(0.0)
    .setInitMode("random").setMaxIter(iterations).fit(vectors(false))
  model.summary.trainingCost
}

def pagerank(): Double = {
  import org.apache.spark.graphx._
  val edges = spark.read.parquet(data).select(col("src").cast("long"), col("dst").cast("long")).as[(Long, Long)].rdd
    .map { case (source, destination) => Edge(source, destination, 1) }
  val graph = Graph.fromEdges(edges, 1).partitionBy(PartitionStrategy.EdgePartition2D, parts).cache()
  val ranks = graph.staticPageRank(iterations).vertices.values.cache()
  ranks.top(10).sum / ranks.sum()
}

try {
  val check = application + "/" + peer match {
    case "regression/Spark, hand-tuned" => handTuned()
    case "regression/Spark MLlib" => regression()
    case "kmeans/Spark MLlib" => kmeans()
    case "pagerank/GraphX" => pagerank()
  }
  spark.stop() // delivers all remaining events to listeners
  println("RESULT " + document(check))
} catch {
  case error: Throwable => println("FAILED " + error.toString.linesIterator.next())
}
System.exit(0)
