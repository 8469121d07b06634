"""Event logs of Spark, the plugin, and Spark as an engine."""
