"""One disk or two on stock Spark: what predicts it (monotasks-sosp17 §6.6)."""
