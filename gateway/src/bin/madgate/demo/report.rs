//! What the demo found out, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::measure::{BANDWIDTH_SIZE, LATENCY_SIZE};
use crate::load::Load;
use crate::units::{counted, duration, float, rate, size};

/// Everything that the demo found out; as JSON, one object.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Whether everything that arrived is what was sent.
    pub(crate) verified: bool,
    pub(crate) files: u64,
    pub(crate) folders: u64,
    /// Files and folders that did not arrive as they are.
    pub(crate) different: usize,
    pub(crate) bytes: u64,
    /// Links, devices, pipes, sockets, and what cannot be read.
    pub(crate) skipped: u64,
    pub(crate) copy_seconds: f64,
    /// Of the slower network.
    pub(crate) direct_mb_per_s: f64,
    pub(crate) direct_left_mb_per_s: f64,
    pub(crate) direct_right_mb_per_s: f64,
    pub(crate) forwarded_mb_per_s: f64,
    /// Forwarded over direct.
    pub(crate) efficiency: f64,
    /// Of the slower network.
    pub(crate) direct_half_rtt_us: f64,
    pub(crate) direct_left_half_rtt_us: f64,
    pub(crate) direct_right_half_rtt_us: f64,
    pub(crate) forwarded_half_rtt_us: f64,
    pub(crate) gateway_peak_rss_bytes: u64,
    /// While the files were copied.
    pub(crate) gateway_copies_per_frame: f64,
    /// How often each figure was measured; it is the median.
    pub(crate) rounds: usize,
    /// What others did on this machine meanwhile, if the kernel says so.
    pub(crate) load: Option<Load>,
}

impl Report {
    /// A table that a person likes to read.
    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        let took = Duration::from_secs_f64(self.copy_seconds);
        let verified = match (self.verified, self.files, self.different) {
            (true, 0, _) => "all there",
            (true, ..) => "all digests equal",
            (false, _, 0) => "NOTHING WAS COPIED: there is no file or folder that can be",
            (false, ..) => "NOT ALL ARE EQUAL",
        };
        let copied = match self.folders {
            0 => counted(self.files, "file"),
            folders => format!(
                "{} and {}",
                counted(self.files, "file"),
                counted(folders, "folder")
            ),
        };
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            table,
            "  copied     {}, {}, in {} ({}): {verified}",
            copied,
            size(self.bytes),
            duration(took),
            rate(self.bytes, took)
        );
        if self.skipped > 0 {
            let _ = writeln!(
                table,
                "  skipped    {} that cannot be copied, named above",
                counted(self.skipped, "thing")
            );
        }
        let _ = writeln!(
            table,
            "\n  {:<34}{:>16}{:>18}",
            "way",
            format!("{BANDWIDTH_SIZE} messages"),
            format!("{LATENCY_SIZE}, half rtt")
        );
        for (way, mb_per_s, half_rtt_us) in [
            (
                "direct     a0 -> gw        tcp",
                self.direct_left_mb_per_s,
                self.direct_left_half_rtt_us,
            ),
            (
                "direct     gw -> b0        shm",
                self.direct_right_mb_per_s,
                self.direct_right_half_rtt_us,
            ),
            (
                "forwarded  a0 -> gw -> b0  both",
                self.forwarded_mb_per_s,
                self.forwarded_half_rtt_us,
            ),
        ] {
            let bandwidth = format!("{:.2} GB/s", mb_per_s / 1000.0);
            let latency = format!("{half_rtt_us:.2} us");
            let _ = writeln!(table, "  {way:<34}{bandwidth:>16}{latency:>18}");
        }
        let _ = write!(
            table,
            "\n  efficiency {:.0} % of the slower network\n  gateway    {:.2} copies per frame, {:.0} MiB of memory at most\n",
            self.efficiency * 100.0,
            self.gateway_copies_per_frame,
            float(self.gateway_peak_rss_bytes) / f64::from(1 << 20)
        );
        if let Some(load) = self.load.filter(|load| load.is_high) {
            let _ = writeln!(
                table,
                "\n  DO NOT TRUST THESE FIGURES: other programs kept {:.1} of {} busy meanwhile",
                load.others,
                counted(load.processors, "processor")
            );
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_every_way() {
        let mut report = Report {
            verified: true,
            files: 2,
            folders: 0,
            bytes: 300_000_000,
            different: 0,
            skipped: 1,
            copy_seconds: 0.5,
            direct_mb_per_s: 3000.0,
            direct_left_mb_per_s: 3000.0,
            direct_right_mb_per_s: 6000.0,
            forwarded_mb_per_s: 2900.0,
            efficiency: 0.966,
            direct_half_rtt_us: 4.0,
            direct_left_half_rtt_us: 4.0,
            direct_right_half_rtt_us: 0.2,
            forwarded_half_rtt_us: 6.0,
            gateway_peak_rss_bytes: 30 << 20,
            gateway_copies_per_frame: 0.25,
            rounds: 3,
            load: Some(Load {
                processors: 2,
                others: 0.01,
                is_high: false,
            }),
        };
        let table = report.table();
        assert!(!table.contains("TRUST"), "{table}");
        for part in [
            "2 files, 300.0 MB",
            "600 MB/s",
            "3.00 GB/s",
            "0.20 us",
            "97 %",
            "30 MiB",
            "skipped    1 thing that",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
        (report.files, report.folders, report.bytes) = (0, 1, 0);
        let table = report.table();
        assert!(table.contains("0 files and 1 folder, 0 B"), "{table}");
        assert!(table.contains("all there"), "{table}");
        (report.verified, report.folders) = (false, 0);
        assert!(
            report
                .table()
                .contains("NOTHING WAS COPIED: there is no file")
        );
        report.load = Some(Load {
            processors: 2,
            others: 1.26,
            is_high: true,
        });
        let table = report.table();
        let warning = "TRUST THESE FIGURES: other programs kept 1.3 of 2 processors busy";
        assert!(table.contains(warning), "{table}");
    }
}
