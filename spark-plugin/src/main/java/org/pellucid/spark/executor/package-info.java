/**
 * The executor's side: starts and completes tasks by the rules of the mode, and talks to the driver.
 */
package org.pellucid.spark.executor;
