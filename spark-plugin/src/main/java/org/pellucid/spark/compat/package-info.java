/**
 * Keeps the plugin harmless on any Spark: failures stay out of the job, untested setups are reported, and
 * methods that differ between versions of Spark or Scala are called by reflection. Uses no other package of the
 * plugin.
 */
package org.pellucid.spark.compat;
