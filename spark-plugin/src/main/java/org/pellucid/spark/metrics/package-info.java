/**
 * The measurements of tasks and executors, and their way into the event log and Spark's metrics.
 */
package org.pellucid.spark.metrics;
