/**
 * The user's settings.
 */
package org.pellucid.spark.settings;
