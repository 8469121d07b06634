package org.pellucid.spark.executor;

/** The mode {@code measure}, and any mode before the plugin has begun: tasks take no permits. */
final class MeasureOnly implements ExecutorMode {}
