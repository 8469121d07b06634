//! Titles, remedies and thresholds that findings from several kinds of input share.

/// Minimum ratio of the best rate to that of one stream at which more streams pay off.
pub(super) const MIN_STREAM_SPEEDUP: f64 = 2.0;
/// Objects under this size are small: a request's latency costs more than moving its bytes.
pub(super) const SMALL_BYTES: u64 = 1 << 20;
/// A request size at which the wait for the first byte hardly matters.
pub(super) const LARGE_REQUEST_BYTES: u64 = 8 << 20;
/// Minimum number of requests that show a pattern.
pub(super) const MIN_REQUESTS: usize = 100;
/// Minimum share of a job's time to report.
pub(super) const MIN_TIME_SHARE: f64 = 0.1;

/// Settings that commit on object stores without rename (Hadoop's documentation of S3A).
pub(super) const COMMITTER: &str = "commit by multipart upload: spark.hadoop.fs.s3a.committer.name=magic, \
    spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a=org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory, \
    spark.sql.sources.commitProtocolClass=org.apache.spark.internal.io.cloud.PathOutputCommitProtocol, \
    spark.sql.parquet.output.committer.class=org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter; \
    for Swift, write through its S3 interface with these settings";

pub(super) const FASTER_WRITES: &str = "use more concurrent writers, a store that keeps fewer copies or, if losing the last bytes is acceptable, one \
     that acknowledges before they are on disk (HDFS: dfs.datanode.synconclose=false)";
pub(super) const UPLOADS_IN_PLACE: &str = "use a store that completes an upload without rewriting its parts; or, if the time does not depend on the size, \
     write fewer and larger files";
pub(super) const FEWER_REQUESTS: &str = "send fewer and larger requests (larger files, larger row groups), fewer of them concurrently, or spread keys \
     over more prefixes";

pub(super) const READ_SLOWER: &str = "input is read slower than a probe reads it";
pub(super) const UPLOADS_WAIT: &str = "output waits for its uploads to be completed";

/// Returns true if an error text reports throttling.
pub(super) fn is_throttling(error: &str) -> bool {
    // A bare status number could be anything: a port, a line, an offset in a file.
    const WORDS: [&str; 9] = [
        "SlowDown",
        "Slow Down",
        "Throttl",
        "Service Unavailable",
        "ServiceUnavailable",
        "Too Many Requests",
        "TooManyRequests",
        "Status Code: 503",
        "Status Code: 429",
    ];
    WORDS.iter().any(|word| error.contains(word))
}
