//! `madgate tune`: finds the values of a route's knobs by measuring.
//!
//! ```text
//!   choices ──> search ──point──> trial ──> route: orders to every node (--tunable)
//!     what         │     score <──┘  └────> objective: what `madgate bench` measures
//!     may be       ▼
//!     tried     outcome ──> report (text, JSON, HTML) and the cluster file
//! ```

mod choices;
mod html;
mod list;
mod objective;
mod report;
mod route;
mod search;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use madgate_vchannel::cluster::{format_duration, parse_duration};

use crate::bench::doubts::{doubts, spinners};
use crate::bench::message_size;
use crate::failure::Failure;
use crate::knobs::{self, Name, Plan};
use crate::load::Watch;
use crate::output::{print, say};
use crate::save::{Target, inputs, keep_apart};
use crate::signals::{Endings, exit_code};
use choices::{Chosen, check_names, choices, count_combinations};
use objective::{Aim, MEASUREMENTS_LEAST, Objective};
use report::Report;
use route::{Route, Stop};
use search::Verdict;
use trial::Trial;

/// Budgets that make sense.
const BUDGET_BOUNDS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(24 * 3600);
/// What is kept of the budget, so that everybody is back at the end: the longest, and the part.
const CLOSING: Duration = Duration::from_secs(2);
const CLOSING_PART: u32 = 10;

/// A message that takes so long does because the way is slow, and not because something else ran.
const SLOW_MESSAGE: Duration = Duration::from_secs(1);

/// Finds the best values for the way to another node by trying them.
///
/// The other end runs `madgate serve --tunable`, and every gateway on the way `madgate gateway
/// --tunable`. At the end they are back to the values of their files; the new file is for
/// whoever runs them to bring in.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    tuning: Option<Tuning>,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::Arguments),
}

#[derive(Debug, Args)]
struct Tuning {
    /// The cluster file; what is found is written into it.
    cluster: PathBuf,
    /// The node that this process is.
    #[arg(long, value_name = "NAME")]
    node: String,
    /// The node at the other end.
    #[arg(long, value_name = "NAME")]
    to: String,
    /// The channel; without it, the first that both nodes are in.
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// What is to become better.
    #[arg(long = "for", value_name = "AIM", default_value = "throughput")]
    aim: Aim,
    /// Sizes of messages.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = message_size)]
    size: Vec<usize>,
    /// How long it may take; nodes that have gone or are stopped are waited for beside that, 13 s, or up to 43 s
    /// where messages take long, or in a measurement `link_timeout`, an eighth of it and 20 s.
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = budget)]
    budget: Duration,
    /// Tries these knobs only; `madgate tune list` names them.
    #[arg(long, value_name = "KNOB,…", value_delimiter = ',', value_parser = Name::parse)]
    knobs: Vec<Name>,
    /// Measures every combination of the values of --knobs, instead of searching.
    #[arg(long, requires = "knobs")]
    sweep: bool,
    /// Writes nothing.
    #[arg(long, conflicts_with = "output")]
    dry_run: bool,
    /// Writes the cluster file with what is found here, and leaves the other one as it is.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes a report with plots to this file, as HTML.
    #[arg(long, value_name = "FILE.html", value_parser = page)]
    report: Option<PathBuf>,
    /// Prints one JSON object at the end, and what happens meanwhile to stderr.
    #[arg(long)]
    json: bool,
}

fn budget(text: &str) -> Result<Duration, String> {
    let budget = parse_duration(text).ok_or("expected a time such as 30s or 5min")?;
    if BUDGET_BOUNDS.contains(&budget) {
        Ok(budget)
    } else {
        Err("expected 5 s at least, and a day at most".to_owned())
    }
}

/// The name of a page.
fn page(name: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(name);
    match file.extension() {
        Some(kind) if kind != "html" && kind != "htm" => Err(format!(
            "the report is a page with its plots in it: call it {}",
            file.with_extension("html").display()
        )),
        _ => Ok(file),
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match (&arguments.action, &arguments.tuning) {
        (Some(Action::List(arguments)), _) => list::run(arguments).map(|()| ExitCode::SUCCESS),
        (None, Some(tuning)) => tune(tuning),
        // The command line is not taken without one of them.
        (None, None) => Err(Failure::new("name a cluster file")),
    }
}

fn tune(tuning: &Tuning) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let objective = Objective::new(tuning.aim, &tuning.size, tuning.budget)?;
    let endings = Endings::listen()?;
    let plan = Plan::read(&tuning.cluster)?;
    let own = plan.cluster().find_node(&tuning.node)?;
    let to = plan.cluster().find_node(&tuning.to)?;
    if to == own {
        return Err(Failure::new(format!("{} is this node itself", tuning.to)));
    }
    // Before anything is measured, as it would be for nothing.
    check_names(&tuning.knobs, plan.cluster(), plan.path())?;
    let [target, html] = prepare(tuning, &plan)?;

    let mut route = Route::open(&plan, &tuning.node, to, tuning.channel.as_deref(), &endings)?;
    let report = measure(tuning, objective, &plan, &mut route, started);
    if report.is_err() {
        route.tell_held();
    }
    route.end();
    let mut report = match report {
        Ok(report) => report,
        Err(Stop::Failure(failure)) => return Err(failure.advising("nothing was written")),
        Err(Stop::Signal(signal)) => {
            say("madgate: broken off; nothing was written");
            return Ok(ExitCode::from(u8::try_from(exit_code(signal)).unwrap_or(1)));
        }
    };
    // What was found is told, whatever becomes of the files: it took long enough.
    let mut failed = None;
    if let (Some(target), Verdict::Better { .. }) = (target, report.verdict()) {
        let changed = plan.with(report.found());
        let changed = changed.map_err(Failure::new)?;
        match target.write(&changed.text) {
            Ok(written) => report.written = Some(written),
            Err(failure) => failed = Some(failure),
        }
    }
    if let Some(html) = html
        && let Err(failure) = html.write(&html::page(&report))
    {
        match &failed {
            None => failed = Some(failure),
            // One of the two ends the command.
            Some(_) => say(&format!("madgate: {failure}")),
        }
    }
    let text = if tuning.json {
        let json = serde_json::to_string(&report.json())?;
        format!("{json}\n")
    } else {
        report.text()
    };
    print(&text)?;
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(failure),
    }
}

/// Sees how long messages take, before anything is changed: leases have to last as long, and a budget
/// for measurements of them.
fn fit(route: &mut Route<'_>, objective: &Objective, budget: Duration) -> Result<(), Stop> {
    let deadline = Instant::now() + budget / 2;
    let mut ones = objective.time_of_one(route, deadline)?;
    let least = |ones: &[Duration]| Objective::time_of_all(ones) * MEASUREMENTS_LEAST;
    let is_too_long = |ones: &[Duration]| least(ones) > budget;
    let longest = |ones: &[Duration]| ones.iter().max().copied().unwrap_or_default();
    if is_too_long(&ones) && longest(&ones) < SLOW_MESSAGE {
        ones = objective.time_of_one(route, deadline)?;
    }
    if is_too_long(&ones) {
        let least = least(&ones);
        let longest = crate::units::duration(longest(&ones));
        return Err(Failure::new(format!(
            "a message takes up to {longest} over this way, too long for a budget of {}: name smaller \
             messages with --size, or a --budget of {} at least",
            format_duration(budget),
            format_duration(Duration::from_secs(least.as_secs() + 1)),
        ))
        .into());
    }
    route.suit(longest(&ones));
    Ok(())
}

/// Prepares to write the cluster file and the report, where that is asked for.
fn prepare(tuning: &Tuning, plan: &Plan) -> Result<[Option<Target>; 2], Failure> {
    let own = plan.path();
    let (output, report) = (tuning.output.as_deref(), tuning.report.as_deref());
    let [file, key] = inputs(own, plan.cluster());
    if let Some(output) = output {
        // It may be the cluster file, of course.
        keep_apart(("--output", output), &[key])?;
    }
    if let Some(report) = report {
        let found = output.map(|output| ("what --output writes", output));
        let others: Vec<_> = [file, key].into_iter().chain(found).collect();
        keep_apart(("--report", report), &others)?;
    }
    let report = report.map(|file| Target::prepare(file, None)).transpose()?;
    if tuning.dry_run {
        return Ok([None, report]);
    }
    let output = output.unwrap_or(own);
    let real = |path: &Path| path.canonicalize().ok();
    let is_itself = output == own || real(output).is_some_and(|it| real(own) == Some(it));
    let found = Target::prepare(output, is_itself.then_some(plan.text()))?;
    Ok([Some(found), report])
}

/// Finds out what there is to be found out.
fn measure<'a>(
    tuning: &'a Tuning,
    objective: Objective,
    plan: &'a Plan,
    route: &mut Route<'_>,
    started: Instant,
) -> Result<Report<'a>, Stop> {
    let cluster = plan.cluster();
    let networks: Vec<String> = route.networks().into_iter().map(str::to_owned).collect();
    let networks: Vec<&str> = networks.iter().map(String::as_str).collect();
    let channel = route.channel()?.name().to_owned();
    let has_gateways = route.has_gateways();
    let every = knobs::names(&[&channel], &networks, cluster);
    let processors = route.begin(&every)?;
    let Chosen { choices, idle } = choices(
        cluster,
        &channel,
        &networks,
        has_gateways,
        &processors,
        &tuning.knobs,
    )?;
    if tuning.sweep {
        count_combinations(&choices, search::MAX_POINTS)?;
    }
    let dimensions: Vec<_> = choices.iter().map(choices::Choice::dimension).collect();
    let description = route.describe();
    let heading = format!(
        "{description}, for {}: {}, {}\n",
        tuning.aim.name(),
        crate::units::counted(choices.len(), "knob"),
        crate::units::duration(tuning.budget)
    );
    let tell = |line: &str| {
        if tuning.json {
            say(line.trim_end());
        } else {
            // Nobody who reads it is no reason to stop.
            let _ = print(line);
        }
    };
    tell(&heading);
    if tuning.knobs.is_empty() && !idle.names.is_empty() {
        tell(&format!("  not tried: {idle}\n"));
    }
    let own = route.channel()?.session().node();
    let spinners = spinners(cluster, own, route.peers().chain([own]));
    let watch = Watch::start();
    fit(route, &objective, tuning.budget)?;
    let mut trial = Trial::new(route, &choices, &objective, started, &tell);
    let closing = CLOSING.min(tuning.budget / CLOSING_PART);
    let time = tuning.budget.saturating_sub(closing);
    let outcome = if tuning.sweep {
        search::sweep(&dimensions, time, &mut trial)
    } else {
        let trades = choices::trades(&choices);
        search::search(&dimensions, &trades, time, &mut trial)
    };
    let outcome = outcome.inspect_err(|_| trial.tell_ahead())?;
    let log = trial.into_log();
    let doubts = doubts(spinners, watch.end());
    Ok(Report {
        description,
        from: &tuning.node,
        to: &tuning.to,
        channel,
        aim: tuning.aim,
        budget: tuning.budget,
        took: started.elapsed(),
        file: plan.path(),
        is_dry: tuning.dry_run,
        objective,
        choices,
        idle,
        outcome,
        doubts,
        log,
        written: None,
    })
}
