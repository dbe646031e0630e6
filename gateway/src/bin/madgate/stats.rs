//! What a gateway does, as a log line and as JSON.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use madgate_gateway::{Counters, NetworkCounters, PipelineCounters, StageTimes};
use madgate_tm::hsl;
use rustix::fs::{Access, Mode, OFlags, access};
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::save::behind_links;
use crate::units::{counted, grouped, rate, size};

/// Rights of a file of counters, less what the user's mask takes away.
const MODE: u32 = 0o666;

/// Bytes of a name at most.
const NAME_MAX: usize = 255;

/// The counters, as one JSON object.
pub(crate) fn object(counters: &Counters) -> Value {
    let networks: Vec<Value> = counters
        .networks
        .iter()
        .map(|network| {
            json!({
                "name": network.name,
                "receives": network.receives,
                "received_bytes": network.received_bytes,
                "sends": network.sends,
                "sent_bytes": network.sent_bytes,
                "blocked": network.blocked,
                "held_back": network.held_back,
                "sleeps": network.sleeps,
                "leaves": network.leaves,
                "stand_ins": network.stand_ins,
                "received_frames": network.received_frames,
                "sent_frames": network.sent_frames,
                "sending_ns": nanos(network.sending),
                "sender_sleeps": network.sender_sleeps,
                "handed_over": network.handed_over,
                "mailbox": network.mailbox,
                "receiver": times(&network.receiver),
                "sender": times(&network.sender),
            })
        })
        .collect();
    let pipelines: Vec<Value> = counters.pipelines.iter().map(pipeline).collect();
    json!({
        "frames": counters.frames,
        "bytes": counters.bytes,
        "copies": counters.copies,
        "copied_bytes": counters.copied_bytes,
        "copies_per_frame": counters.copies_per_frame(),
        "spliced_frames": counters.spliced_frames,
        "parked_copies": counters.parked_copies,
        "parked_bytes": counters.parked_bytes,
        "flows_opened": counters.flows_opened,
        "refused": counters.refused,
        "stale": counters.stale,
        "control_dropped": counters.control_dropped,
        "corrupt": counters.corrupt,
        "misbehaved": counters.misbehaved,
        "flows": counters.flows,
        "flow_limit": counters.flow_limit,
        "links": counters.links,
        "queued_bytes": counters.queued_bytes,
        "promised_bytes": counters.promised_bytes,
        "uptime_ns": nanos(counters.uptime),
        "queued_peak_bytes": counters.queued_peak_bytes,
        "parked_flows": counters.parked_flows,
        "parked_ahead_ns": nanos(counters.parked_ahead),
        "parked_memory_ns": nanos(counters.parked_memory),
        "networks": networks,
        "pipelines": pipelines,
        "cards": cards(&hsl::counters()),
    })
}

/// What the cards of remote write have done, of all networks of this process that have them.
fn cards(counters: &hsl::Counters) -> Value {
    json!({
        "puts": counters.puts,
        "put_bytes": counters.put_bytes,
        "registered_bytes": counters.registered_bytes,
        "refused": counters.refused,
        "notifications": counters.notifications,
        "doorbells": counters.doorbells,
        "interrupts": counters.interrupts,
        "foreign_puts": counters.foreign_puts,
        "foreign_calls": counters.foreign_calls,
    })
}

fn times(times: &StageTimes) -> Value {
    json!({
        "receiving_ns": nanos(times.receiving),
        "handing_over_ns": nanos(times.handing_over),
        "sending_ns": nanos(times.sending),
        "waiting_ns": nanos(times.waiting),
    })
}

fn pipeline(pipeline: &PipelineCounters) -> Value {
    let hop = &pipeline.hop;
    json!({
        "from": pipeline.from,
        "to": pipeline.to,
        "frames": pipeline.frames,
        "bytes": pipeline.bytes,
        "pieces": pipeline.pieces,
        "copies": pipeline.copies,
        "copied_bytes": pipeline.copied_bytes,
        "copies_per_frame": pipeline.copies_per_frame(),
        "spliced_frames": pipeline.spliced_frames,
        "parked_copies": pipeline.parked_copies,
        "parked_bytes": pipeline.parked_bytes,
        "queued_bytes": pipeline.queued_bytes,
        "parked_flows": pipeline.parked_flows,
        "parked_ahead_ns": nanos(pipeline.parked_ahead),
        "parked_memory_ns": nanos(pipeline.parked_memory),
        "receiving_ns": nanos(pipeline.times.receiving),
        "handing_over_ns": nanos(pipeline.times.handing_over),
        "sending_ns": nanos(pipeline.times.sending),
        "waiting_ns": nanos(pipeline.times.waiting),
        "hop_p50_us": micros(hop.quantile(0.5)),
        "hop_p99_us": micros(hop.quantile(0.99)),
        "hop_max_us": micros(hop.longest()),
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Writes the counters to a file, which others see whole or not at all; to what is no file, such as
/// a pipe that somebody reads, as it is.
pub(crate) fn write(path: &Path, counters: &Counters) -> io::Result<()> {
    let text = format!("{}\n", object(counters));
    if is_no_file(path) {
        return open_as_it_is(path)?.write_all(text.as_bytes());
    }
    // A link stays one.
    let path = behind_links(path)?;
    let beside = beside(&path);
    // What a process left there that was killed; only one writes the file.
    if let Err(error) = fs::remove_file(&beside)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = File::options();
    let written = options
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // Nothing is there, or it is of no use.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Finds out whether [`write()`] could write there, and leaves what is there as it is.
pub(crate) fn try_out(path: &Path) -> io::Result<()> {
    if is_no_file(path) {
        // Not opened: who reads a pipe would find its end when that is closed again.
        return Ok(access(path, Access::WRITE_OK)?);
    }
    let path = behind_links(path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // Under a name of its own: a gateway that runs may be writing beside it.
    tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop)
}

/// Whether something else than a file is there: also what has no name, such as the other end of
/// `/dev/stdout`.
fn is_no_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|present| !present.is_file())
}

fn open_as_it_is(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(File::from(file))
}

/// The name that a file has until it is whole: always the same, so that a process that is killed
/// leaves one at most, for the next to replace.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    // In a folder that many write in, nobody takes away what is another user's.
    let front = format!(".madgate-stats-{}-", geteuid().as_raw());
    let kept = &name[..name.len().min(NAME_MAX - front.len())];
    path.with_file_name(OsStr::from_bytes(&[front.as_bytes(), kept].concat()))
}

/// What happened in a period, in one line.
pub(crate) fn line(period: &Counters) -> String {
    let mut line = format!(
        "{} in {}; {} of {}, {}, {} queued, {} promised",
        rate(period.bytes, period.uptime),
        counted(period.frames, "frame"),
        counted(period.flows, "flow"),
        grouped(period.flow_limit.into()),
        counted(period.links, "link"),
        size(period.queued_bytes),
        size(period.promised_bytes),
    );
    if period.parked_flows > 0 {
        line += &format!(
            ", {} parked for credit",
            counted(period.parked_flows, "flow")
        );
    }
    line
}

/// What each pipeline did in a period, one line for each that carried something or where something
/// waits.
pub(crate) fn pipeline_lines(period: &Counters) -> Vec<String> {
    let active = period
        .pipelines
        .iter()
        .filter(|way| way.frames > 0 || way.queued_bytes > 0 || way.parked_flows > 0);
    active
        .filter_map(|way| {
            let of = |name: &String| period.networks.iter().find(move |one| &one.name == name);
            Some(pipeline_line(period, way, of(&way.from)?, of(&way.to)?))
        })
        .collect()
}

fn pipeline_line(
    period: &Counters,
    way: &PipelineCounters,
    from: &NetworkCounters,
    to: &NetworkCounters,
) -> String {
    let hop = &way.hop;
    let receives = from.receives.max(1);
    format!(
        "{} -> {}: {}, {:.1} frames and {} a receive; hop p50 {:.1} us, p99 {:.1}, max {:.1}; \
         {:.2} copies a frame{}; {} queued{}{}; receiver of {}: {}, {}; sender of {}: {}, {}",
        way.from,
        way.to,
        rate(way.bytes, period.uptime),
        from.frames_per_receive(),
        size(from.received_bytes / receives),
        micros(hop.quantile(0.5)),
        micros(hop.quantile(0.99)),
        micros(hop.longest()),
        way.copies_per_frame(),
        waited(way),
        size(way.queued_bytes),
        parked(way),
        part(period, way),
        way.from,
        shares(&from.receiver),
        counted(from.sleeps, "wake-up"),
        way.to,
        shares(&to.sender),
        counted(to.sender_sleeps, "wake-up"),
    )
}

/// How many copies there were besides, because frames had to wait.
fn waited(way: &PipelineCounters) -> String {
    if way.parked_copies == 0 {
        return String::new();
    }
    format!(", {} more of what waited", grouped(way.parked_copies))
}

/// For how long flows had no credit, and how many have none now, if there is something to say.
fn parked(way: &PipelineCounters) -> String {
    let times = [
        (way.parked_ahead, "ahead"),
        (way.parked_memory, "for memory here"),
    ];
    let mut said = String::new();
    for (time, what) in times {
        if !time.is_zero() {
            said += &format!(", parked {:.1} ms {what}", time.as_secs_f64() * 1e3);
        }
    }
    if way.parked_flows > 0 {
        said += &format!(", {} parked now", counted(way.parked_flows, "flow"));
    }
    said
}

/// What was done for a pipeline, where its threads have others too.
fn part(period: &Counters, way: &PipelineCounters) -> String {
    let is_beside = |other: &PipelineCounters| {
        other.frames > 0 && (other.from == way.from) != (other.to == way.to)
    };
    if !period.pipelines.iter().any(is_beside) {
        return String::new();
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let times = &way.times;
    format!(
        "; for it {:.1} ms of receiving, {:.1} of handing over, {:.1} of sending",
        ms(times.receiving),
        ms(times.handing_over),
        ms(times.sending),
    )
}

/// What a thread does, in parts of its time.
fn shares(times: &StageTimes) -> String {
    let all = (times.busy() + times.waiting).as_secs_f64().max(1e-9);
    let percent = |time: Duration| 100.0 * time.as_secs_f64() / all;
    format!(
        "{:.0} % receiving, {:.0} % handing over, {:.0} % sending, {:.0} % waiting",
        percent(times.receiving),
        percent(times.handing_over),
        percent(times.sending),
        percent(times.waiting),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, mknodat};

    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn what_has_no_name_is_written_as_it_is() {
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", writer.as_raw_fd());
        try_out(Path::new(&path)).unwrap();
        write(Path::new(&path), &Counters::default()).unwrap();
        drop(writer);
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        let written: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(written["frames"], 0);
    }

    #[test]
    fn who_reads_a_pipe_does_not_find_its_end_where_it_is_tried_out() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        let has_ended = || {
            let mut looked = [PollFd::new(&reader, PollFlags::IN)];
            poll(&mut looked, Some(&Timespec::default())).unwrap();
            looked[0].revents().contains(PollFlags::HUP)
        };
        try_out(&path).unwrap();
        assert!(!has_ended());
        write(&path, &Counters::default()).unwrap();
        assert!(has_ended(), "what was written, and its end");
    }

    #[test]
    fn a_file_that_is_tried_out_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters.json");
        fs::write(&path, "of another gateway").unwrap();
        try_out(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "of another gateway");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(try_out(&folder.path().join("nowhere/counters.json")).is_err());
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("stats"), folder.path().join("link"));
        symlink("stats", &link).unwrap();
        // A gateway that was killed left it.
        fs::write(beside(&file), "{").unwrap();
        for path in [&file, &link, &file] {
            write(path, &Counters::default()).unwrap();
            let text = fs::read_to_string(&file).unwrap();
            assert!(serde_json::from_str::<Value>(&text).unwrap().is_object());
        }
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    /// 100 frames in a second from left to right, each of which was copied once.
    fn period() -> Counters {
        let mut period = Counters::default();
        period.uptime = Duration::from_secs(1);
        for name in ["left", "right"] {
            let mut network = NetworkCounters::default();
            network.name = name.into();
            network.receives = 50;
            network.received_frames = 100;
            network.received_bytes = 1_000_000;
            (network.sleeps, network.sender_sleeps) = (3, 1);
            network.receiver.receiving = Duration::from_millis(250);
            network.receiver.waiting = Duration::from_millis(750);
            network.sender.waiting = Duration::from_secs(1);
            period.networks.push(network);
        }
        let mut way = PipelineCounters::default();
        (way.from, way.to) = ("left".into(), "right".into());
        (way.frames, way.bytes) = (100, 1_000_000);
        (way.copies, way.copied_bytes) = (100, 1_000_000);
        period.pipelines.push(way);
        period
    }

    #[test]
    fn a_line_says_what_a_pipeline_did_and_what_its_frames_met() {
        let mut period = period();
        let threads = "receiver of left: 25 % receiving, 0 % handing over, 0 % sending, \
            75 % waiting, 3 wake-ups; sender of right: 0 % receiving, 0 % handing over, \
            0 % sending, 100 % waiting, 1 wake-up";
        let expected = format!(
            "left -> right: 1.00 MB/s, 2.0 frames and 20.0 kB a receive; hop p50 0.0 us, \
             p99 0.0, max 0.0; 1.00 copies a frame; 0 B queued; {threads}"
        );
        assert_eq!(pipeline_lines(&period), [expected]);

        let way = &mut period.pipelines[0];
        way.parked_copies = 1200;
        way.queued_bytes = 5000;
        way.parked_ahead = Duration::from_millis(1500);
        way.parked_flows = 2;
        let expected = format!(
            "left -> right: 1.00 MB/s, 2.0 frames and 20.0 kB a receive; hop p50 0.0 us, \
             p99 0.0, max 0.0; 1.00 copies a frame, 1,200 more of what waited; 5.0 kB queued, \
             parked 1500.0 ms ahead, 2 flows parked now; {threads}"
        );
        assert_eq!(pipeline_lines(&period), [expected]);
        // Nothing leaves, and it says so.
        period.pipelines[0].frames = 0;
        assert_eq!(pipeline_lines(&period).len(), 1);
        period.pipelines[0].queued_bytes = 0;
        period.pipelines[0].parked_flows = 0;
        assert_eq!(pipeline_lines(&period).len(), 0);
    }

    #[test]
    fn what_was_done_for_a_pipeline_is_said_where_others_share_its_threads() {
        let mut period = period();
        period.pipelines[0].times.receiving = Duration::from_millis(200);
        let mut back = period.pipelines[0].clone();
        (back.from, back.to) = ("right".into(), "left".into());
        period.pipelines.push(back);
        let said = "; for it 200.0 ms of receiving, 0.0 of handing over, 0.0 of sending; receiver";
        let count = |period: &Counters| {
            let lines = pipeline_lines(period);
            lines.iter().filter(|line| line.contains(said)).count()
        };
        assert_eq!(
            count(&period),
            0,
            "the other direction has threads of its own"
        );
        period.pipelines[1].from = "third".into();
        period.pipelines[1].to = "right".into();
        let mut third = period.networks[0].clone();
        third.name = "third".into();
        period.networks.push(third);
        assert_eq!(count(&period), 2);
        period.pipelines[1].frames = 0;
        assert_eq!(count(&period), 0);
    }

    #[test]
    fn json_says_the_same_of_each_pipeline() {
        let object = object(&period());
        let way = &object["pipelines"][0];
        assert_eq!(
            (&way["from"], &way["to"]),
            (&json!("left"), &json!("right"))
        );
        let number = |name: &str| way[name].as_f64().unwrap();
        let copies = ["copies", "copied_bytes", "copies_per_frame"].map(number);
        assert_eq!(copies, [100.0, 1e6, 1.0]);
        for name in [
            "spliced_frames",
            "parked_copies",
            "parked_bytes",
            "queued_bytes",
            "parked_flows",
            "parked_ahead_ns",
            "parked_memory_ns",
        ] {
            assert_eq!(way[name], 0, "{name}");
        }
    }

    #[test]
    fn what_is_no_file_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // Nobody reads it, and it is not waited for.
        assert!(write(&pipe, &Counters::default()).is_err());
        assert!(write(folder.path(), &Counters::default()).is_err());
        assert!(write(&folder.path().join("no/stats"), &Counters::default()).is_err());
        write(Path::new("/dev/null"), &Counters::default()).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(!fs::metadata(&pipe).unwrap().is_file());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
