//! Metrics that Pellucid's plugin adds to a task: waits that stock Spark does not measure, and the concurrency
//! of the executor.
//!
//! The plugin logs its metrics as accumulables of tasks. It always logs the concurrency, which marks its
//! presence. If a wait is missing then, it was not measured, because the task's I/O bypassed the plugin (as
//! with the file system of an object store). If bytes or queue time are missing, they are zero.

use pellucid_trace::{Blocked, PipelinedTask, reason};

/// The plugin's metrics of a task.
#[derive(Debug, Default)]
pub struct PluginMetrics {
    /// Concurrency of the executor when the task ended.
    concurrency: Option<u64>,
    /// Code of the reason for the concurrency.
    reason: Option<u64>,
    read_wait_ns: Option<u64>,
    write_wait_ns: Option<u64>,
    read_bytes: Option<u64>,
    queue_ns: Option<u64>,
    io_wait_ns: Option<u64>,
    /// Cores available to the executor. A few tasks of each stage report them.
    cores: Option<u64>,
}

impl PluginMetrics {
    /// Returns the field for an accumulable of this name, or `None` if the name is unknown.
    pub fn slot(&mut self, name: &[u8]) -> Option<&mut Option<u64>> {
        Some(match name.strip_prefix(b"pellucid.")? {
            b"concurrency" => &mut self.concurrency,
            b"reason" => &mut self.reason,
            b"read_wait_ns" => &mut self.read_wait_ns,
            b"write_wait_ns" => &mut self.write_wait_ns,
            b"read_bytes" => &mut self.read_bytes,
            b"queue_ns" => &mut self.queue_ns,
            b"io_wait_ns" => &mut self.io_wait_ns,
            b"cores" => &mut self.cores,
            _ => return None,
        })
    }

    /// Adds the metrics that stock Spark lacks to a task.
    pub fn add(&self, task: &mut PipelinedTask) {
        let run_ns = task.run_ns.unwrap_or(task.duration_ns);
        let within = |wait: Option<u64>| wait.map(|ns| ns.min(run_ns));
        task.blocked_input = within(self.read_wait_ns).map(Blocked::MeasuredNs);
        task.blocked_output = within(self.write_wait_ns).map(Blocked::MeasuredNs);
        task.queue_ns = within(self.queue_ns.or(self.concurrency.map(|_| 0)));
        // Spark does not count vectored reads.
        task.input_bytes = self.read_bytes.max(task.input_bytes);
    }

    /// Returns whether the plugin saw all file reads, so that the input bytes are reliable.
    pub fn counted_input(&self) -> bool {
        self.read_bytes.is_some() || self.read_wait_ns.is_some()
    }

    /// Returns the total wait of the task's thread, if measured. It bounds every wait that was not measured.
    pub fn waited_ns(&self) -> Option<u64> {
        self.io_wait_ns
    }

    /// Returns the cores available to the executor, whatever its number of slots.
    pub fn cores(&self) -> Option<u32> {
        self.cores.and_then(|cores| u32::try_from(cores).ok()).filter(|cores| *cores > 0)
    }

    /// Returns the concurrency of the executor when the task ended, and the reason for it.
    pub fn chosen(&self) -> Option<(u32, Option<&'static str>)> {
        let concurrency = u32::try_from(self.concurrency?).ok().filter(|n| *n > 0)?;
        Some((concurrency, self.reason.and_then(reason::of_plugin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(metrics: &[(&str, u64)]) -> PluginMetrics {
        let mut measured = PluginMetrics::default();
        for (name, value) in metrics {
            *measured.slot(name.as_bytes()).expect(name) = Some(*value);
        }
        measured
    }

    #[test]
    fn missing_waits_are_unmeasured_and_missing_amounts_are_zero() {
        let mut task = PipelinedTask { run_ns: Some(500), input_bytes: Some(9), ..Default::default() };
        let metrics =
            [("pellucid.concurrency", 4), ("pellucid.read_wait_ns", 900), ("pellucid.read_bytes", 70)];
        measured(&metrics).add(&mut task);
        assert_eq!(task.blocked_input, Some(Blocked::MeasuredNs(500)), "limited to the run time");
        assert_eq!((task.blocked_output, task.queue_ns, task.input_bytes), (None, Some(0), Some(70)));
        let mut stock = PipelinedTask { run_ns: Some(500), ..Default::default() };
        measured(&[]).add(&mut stock);
        assert_eq!((stock.blocked_input, stock.queue_ns), (None, None));
        let cores = |value| measured(&[("pellucid.cores", value)]).cores();
        assert_eq!((cores(2), cores(0), cores(u64::MAX), measured(&[]).cores()), (Some(2), None, None, None));
        assert!(PluginMetrics::default().slot(b"scan time").is_none());
        assert!(PluginMetrics::default().slot(b"pellucid.newer").is_none());
    }
}
