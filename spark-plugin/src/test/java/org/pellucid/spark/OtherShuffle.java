package org.pellucid.spark;

import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.sort.SortShuffleManager;

/** A third-party ShuffleManager that behaves like Spark's own. */
public final class OtherShuffle extends SortShuffleManager {
    public OtherShuffle(SparkConf conf) {
        super(conf);
    }
}
