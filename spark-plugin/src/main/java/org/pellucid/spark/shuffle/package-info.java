/**
 * Shuffle blocks that are read ahead in {@code monotasks} mode: those of each stage, on the driver, and
 * their files, in the executors.
 */
package org.pellucid.spark.shuffle;
