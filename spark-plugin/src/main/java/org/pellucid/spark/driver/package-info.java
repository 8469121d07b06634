/**
 * The driver's side: registers the accumulables, adjusts slots, and keeps what stages found.
 */
package org.pellucid.spark.driver;
