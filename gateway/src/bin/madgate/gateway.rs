//! `madgate gateway`: forwards between the networks of its node.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use crossbeam_channel::{never, select, tick};
use madgate_gateway::{Counters, Gateway};
use madgate_vchannel::Cluster;
use madgate_vchannel::cluster::parse_duration;

use crate::failure::{Context, Failure};
use crate::limits;
use crate::output::print;
use crate::save::{inputs, keep_apart};
use crate::service::Service;
use crate::signals::Endings;
use crate::stats;
use crate::tunable::{self, Node, Trials, Tunable};
use crate::units::{duration, size};

/// How long copies may take to break off when the gateway ends.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// How long it may take before a trial to send what is carried; senders keep the rest.
const TRIAL_DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// The longest drain.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// Runs a gateway, which forwards between the networks that it is on.
///
/// Prints one line when it is ready. SIGTERM or SIGINT drains it: it takes nothing new,
/// finishes what it carries, and says what it dropped, which is normally nothing. It answers
/// `madgate bench` too.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster file.
    cluster: PathBuf,
    /// The node that this process is.
    #[arg(long, value_name = "NAME")]
    node: String,
    /// Logs what it does, so often.
    #[arg(long, value_name = "TIME", value_parser = crate::units::interval)]
    stats_interval: Option<Duration>,
    /// Writes its counters to this file, as one JSON object, at every interval and at the end.
    #[arg(long, value_name = "FILE")]
    stats_json: Option<PathBuf>,
    /// How long it may take to finish what it carries.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    drain_limit: Duration,
    /// Receives files under this folder too, as `madgate serve` does.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Lets `madgate tune` on any member try other values on this node for a while; every trial
    /// restarts its forwarding, of which nothing is lost.
    #[arg(long)]
    tunable: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok_or("expected a time such as 500ms, 5s or 1min")?;
    if time.is_zero() || time > MAX_TIME {
        return Err("expected more than nothing, and a day at most".into());
    }
    Ok(time)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let endings = Endings::listen()?;
    limits::raise_descriptors();
    let (cluster, trials) = tunable::read(&arguments.cluster, &arguments.node, arguments.tunable)?;
    let name = &arguments.node;
    if let Some(file) = &arguments.stats_json {
        let read = inputs(&arguments.cluster, &cluster);
        keep_apart(("--stats-json", file), &read)?;
        // Where that cannot be, it is said at once.
        stats::try_out(file).or_fail(|| cannot_write(file))?;
    }
    let start = |cluster: &Arc<Cluster>| Forwarder::start(cluster, arguments, &trials);
    let mut forwarder = Tunable::start(&trials, &cluster, start)?;
    if let Some(file) = &arguments.stats_json {
        // Not before the gateway has started: the counters of one that runs already may be there.
        stats::write(file, &counters_of(forwarder.node()).unwrap_or_default())
            .or_fail(|| cannot_write(file))?;
    }
    let between = networks(&cluster, name);
    print(&format!(
        "madgate gateway {name}: ready, forwarding between {between}\n"
    ))?;

    watch(&mut forwarder, &endings, arguments);
    let Some(Forwarder {
        gateway, service, ..
    }) = forwarder.into_node()
    else {
        return Err(Failure::new(format!(
            "gateway {name} ends while it cannot be started; its log says why"
        )));
    };
    if !service.is_none_or(|service| service.stop(STOP_LIMIT)) {
        tracing::warn!("a copy does not end, as it waits for its node or for a disk: it is left");
    }
    let drained = gateway.drain(arguments.drain_limit);
    if let Some(file) = &arguments.stats_json {
        write(file, &gateway.counters());
    }
    let took = duration(drained.took);
    let dropped = match drained.dropped_bytes {
        0 => "nothing dropped".to_owned(),
        bytes => format!(
            "dropped {}, which the nodes that sent it send again when the gateway is back",
            size(bytes)
        ),
    };
    print(&format!(
        "madgate gateway {name}: drained in {took}, {dropped}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Reports at every interval, and follows its trials, until a signal comes.
fn watch<'a>(
    forwarder: &mut Tunable<
        Forwarder<'a>,
        impl Fn(&Arc<Cluster>) -> Result<Forwarder<'a>, Failure>,
    >,
    endings: &Endings,
    arguments: &Arguments,
) {
    let ticks = arguments.stats_interval.map_or_else(never, tick);
    let mut before = counters_of(forwarder.node()).unwrap_or_default();
    loop {
        let timer = forwarder.timer();
        select! {
            recv(endings.signals()) -> _ => return,
            recv(forwarder.woken()) -> _ => {}
            recv(timer) -> _ => {}
            // Between two trials there is nothing to tell of.
            recv(ticks) -> _ => if let Some(now) = counters_of(forwarder.node()) {
                let period = now.since(&before);
                tracing::info!("{}", stats::line(&period));
                for line in stats::pipeline_lines(&period) {
                    tracing::info!("{line}");
                }
                if let Some(file) = &arguments.stats_json {
                    write(file, &now);
                }
                before = now;
            }
        }
        if forwarder.look() {
            // Its counters begin anew with it.
            before = counters_of(forwarder.node()).unwrap_or_default();
        }
    }
}

fn cannot_write(file: &Path) -> String {
    format!("cannot write the counters to {}", file.display())
}

/// What a node counts, while it runs.
fn counters_of(forwarder: Option<&Forwarder<'_>>) -> Option<Counters> {
    forwarder.map(|forwarder| forwarder.gateway.counters())
}

/// The node, while it runs.
#[derive(Debug)]
struct Forwarder<'a> {
    gateway: Gateway,
    /// None where it was ended, and its desks are not.
    service: Option<Service>,
    arguments: &'a Arguments,
    trials: &'a Arc<Trials>,
}

impl<'a> Forwarder<'a> {
    fn start(
        cluster: &Arc<Cluster>,
        arguments: &'a Arguments,
        trials: &'a Arc<Trials>,
    ) -> Result<Self, Failure> {
        let name = &arguments.node;
        let gateway = Gateway::start(Arc::clone(cluster), name)
            .or_fail(|| format!("cannot start gateway {name}"))?;
        let service = {
            let observer = gateway.observer();
            let folder = arguments.dir.as_deref();
            Service::start(gateway.session(), folder, Some(&observer), trials)?
        };
        Ok(Self {
            gateway,
            service: Some(service),
            arguments,
            trials,
        })
    }
}

impl Node for Forwarder<'_> {
    fn stop(mut self) -> Result<(), Self> {
        if let Some(service) = self.service.take()
            && !service.stop(STOP_LIMIT)
        {
            let folder = self.arguments.dir.as_deref();
            self.service = Service::start(
                self.gateway.session(),
                folder,
                Some(&self.gateway.observer()),
                self.trials,
            )
            .inspect_err(|error| tracing::error!(%error, "nothing is answered any more"))
            .ok();
            return Err(self);
        }
        // What it has answered itself, then what it carries for others.
        if let Err(error) = self.gateway.session().clone().close(STOP_LIMIT) {
            tracing::debug!(%error, "the session is left early");
        }
        let limit = TRIAL_DRAIN_LIMIT.min(self.arguments.drain_limit);
        let drained = self.gateway.drain(limit);
        if drained.dropped_bytes > 0 {
            tracing::info!(bytes = drained.dropped_bytes, "dropped, and sent again");
        }
        Ok(())
    }
}

fn write(file: &Path, counters: &Counters) {
    // A disk that is full is no reason to stop forwarding.
    if let Err(error) = stats::write(file, counters) {
        tracing::warn!(%error, file = %file.display(), "cannot write the counters");
    }
}

/// The networks of a node: `"left and right"`.
fn networks(cluster: &Cluster, node: &str) -> String {
    let names: Vec<&str> = cluster
        .node(node)
        .into_iter()
        .flat_map(|node| cluster.networks_of(node))
        .map(|network| cluster.network(network).name.as_str())
        .collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "no networks".to_owned(),
    }
}
