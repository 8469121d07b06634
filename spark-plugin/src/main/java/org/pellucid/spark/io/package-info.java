/**
 * Reads and writes of files through Hadoop, measured, and in {@code monotasks} mode queued for their disk.
 */
package org.pellucid.spark.io;
