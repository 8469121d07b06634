//! Shortening of texts in a log, and parsing of call sites.

/// Returns the first line that is not empty.
pub fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("")
}

/// Maximum length of an error message.
const MAX_ERROR_CHARS: usize = 500;

/// Returns the first line of an error message, truncated.
pub fn first_line_clipped(text: &str) -> String {
    clipped(first_line(text), MAX_ERROR_CHARS)
}

/// Truncates a text to `chars` characters, with `…` at the end if it was longer.
pub fn clipped(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => text[..end].to_owned() + "…",
    }
}

/// Splits Spark's `count at reduce.py:39` into `count` and `reduce.py:39`.
pub fn action_and_place(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(" at ") {
        Some((action, place)) if place.contains(':') => (action, Some(place)),
        _ => (name, None),
    }
}

/// Returns whether a call site (`FutureTask.java:264`) is not in user code. Spark logs such call sites for
/// actions on pool threads or from Python.
pub fn is_internal(place: &str) -> bool {
    const FILES: [&str; 12] = [
        "FutureTask.java",
        "ThreadPoolExecutor.java",
        "CompletableFuture.java",
        "NativeMethodAccessorImpl.java",
        "DirectMethodHandleAccessor.java",
        "DirectConstructorHandleAccessor.java",
        "NativeConstructorAccessorImpl.java",
        "GeneratedMethodAccessor",
        "Executors.java",
        "ForkJoinTask.java",
        "Thread.java",
        "<unknown>",
    ];
    FILES.iter().any(|file| place.starts_with(file))
}

/// Returns the call site of the first frame of user code in a stack trace.
pub fn user_frame(stack: &str) -> Option<&str> {
    const FOREIGN: [&str; 11] = [
        "org.apache.spark.",
        "java.",
        "javax.",
        "jdk.",
        "sun.",
        "com.sun.",
        "scala.",
        "py4j.",
        "org.apache.hadoop.",
        "com.databricks.",
        "com.nvidia.",
    ];
    let own = |frame: &&str| {
        // Java 9 and later: `java.base/java.lang.Thread.run(Thread.java:840)`.
        let method = frame.rsplit_once('/').map_or(*frame, |(_, method)| method);
        let foreign = FOREIGN.iter().any(|package| method.starts_with(package));
        !foreign || method.starts_with("org.apache.spark.examples.")
    };
    let frame = stack.lines().map(str::trim).find(|frame| frame.ends_with(')') && own(frame))?;
    let place = frame[frame.rfind('(')? + 1..].trim_end_matches(')');
    Some(place).filter(|place| place.contains(':') && !is_internal(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_sites_are_parsed() {
        assert_eq!(action_and_place("count at a b.py:3"), ("count", Some("a b.py:3")));
        assert_eq!(action_and_place("Delta: at rest"), ("Delta: at rest", None));
        assert!(is_internal("NativeMethodAccessorImpl.java:0"));
        assert!(!is_internal("Report.scala:42"));
        let stack = "org.apache.spark.rdd.RDD.count(RDD.scala:910)\n\
                     java.base/java.lang.Thread.run(Thread.java:840)\n\
                     com.acme.Report$.main(Report.scala:42)\ncom.acme.Report.main(Report.scala)";
        assert_eq!(user_frame(stack), Some("Report.scala:42"));
        assert_eq!(user_frame("java.base/java.lang.Thread.run(Thread.java:840)"), None);
        assert_eq!(user_frame(""), None);
    }

    #[test]
    fn clipped_counts_characters() {
        assert_eq!(clipped("äöü", 2), "äö…");
        assert_eq!(clipped("äö", 2), "äö");
        assert_eq!(first_line("\n  \n one \ntwo"), "one");
    }
}
