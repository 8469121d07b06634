/**
 * The decisions: how many tasks of a stage and monotasks of a disk run, in which order, and what later
 * stages reuse. Plain Java that knows neither Spark nor Hadoop; time comes from the caller.
 */
package org.pellucid.spark.core;
