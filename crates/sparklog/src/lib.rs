//! Spark event logs in, trace out.
