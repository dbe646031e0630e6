//! Connecting, on threads of its own where a host name has to be resolved first: that may
//! block for as long as the system likes.

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use madgate_tm::{Endpoint, Stranger, Tuning, Waker};

use super::dials::Attempt;
use super::limits::{NAMES_WAITING_MOST, RESOLVERS};

/// The connections of a link that is dialled: urgent, bulk.
pub(super) type Connections = (Box<dyn Stranger>, Box<dyn Stranger>);

/// Connects both lanes of a link.
pub(super) fn connect(endpoint: &Endpoint, tuning: &Tuning) -> io::Result<Connections> {
    let urgent = madgate_tm::connect(endpoint, tuning)?;
    let bulk = madgate_tm::connect(endpoint, tuning)?;
    Ok((urgent, bulk))
}

/// Whether connecting may block.
pub(super) fn needs_resolving(endpoint: &Endpoint) -> bool {
    endpoint
        .host()
        .is_some_and(|host| host.parse::<IpAddr>().is_err())
}

/// The threads that resolve, started when the first name comes. They are not waited for at
/// the end: each ends by itself when its name is resolved.
#[derive(Debug)]
pub(super) struct Resolver {
    jobs: Sender<Job>,
    todo: Receiver<Job>,
    answers: Sender<Answer>,
    done: Receiver<Answer>,
    waker: Waker,
    threads: usize,
}

struct Job {
    attempt: Attempt,
    /// Nobody waits for it any longer then.
    until: Instant,
    endpoint: Endpoint,
    tuning: Tuning,
}

type Answer = (Attempt, io::Result<Connections>);

impl Resolver {
    pub(super) fn new(waker: Waker) -> Self {
        let (jobs, todo) = bounded(NAMES_WAITING_MOST);
        let (answers, done) = bounded(NAMES_WAITING_MOST + RESOLVERS);
        Self {
            jobs,
            todo,
            answers,
            done,
            waker,
            threads: 0,
        }
    }

    /// Resolves and connects; the answer comes later, and the poller is woken. There is none where its
    /// turn does not come before `until`.
    pub(super) fn start(
        &mut self,
        attempt: Attempt,
        until: Instant,
        endpoint: Endpoint,
        tuning: Tuning,
    ) -> io::Result<()> {
        while self.threads < RESOLVERS {
            match self.spawn() {
                Ok(()) => self.threads += 1,
                // Fewer will do, and the next name tries again.
                Err(_) if self.threads > 0 => break,
                Err(error) => return Err(error),
            }
        }
        let job = Job {
            attempt,
            until,
            endpoint,
            tuning,
        };
        self.jobs
            .try_send(job)
            .map_err(|_| io::Error::other("too many host names wait to be resolved"))
    }

    fn spawn(&self) -> io::Result<()> {
        let (todo, answers, waker) = (self.todo.clone(), self.answers.clone(), self.waker.clone());
        thread::Builder::new()
            .name("madgate-resolver".to_owned())
            .spawn(move || resolve(&todo, &answers, &waker))?;
        Ok(())
    }

    /// The next answer.
    pub(super) fn poll(&self) -> Option<Answer> {
        self.done.try_recv().ok()
    }
}

fn resolve(todo: &Receiver<Job>, answers: &Sender<Answer>, waker: &Waker) {
    while let Ok(job) = todo.recv() {
        if Instant::now() >= job.until {
            // It was given up while names in front of it took their time.
            continue;
        }
        let answer = (job.attempt, connect(&job.endpoint, &job.tuning));
        if answers.send(answer).is_err() {
            return;
        }
        waker.wake();
    }
}
