package org.pellucid.spark;

import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.sort.SortShuffleManager;

/** Somebody else's ShuffleManager, which does what Spark's own does. */
public final class OtherShuffle extends SortShuffleManager {
    public OtherShuffle(SparkConf conf) {
        super(conf);
    }
}
