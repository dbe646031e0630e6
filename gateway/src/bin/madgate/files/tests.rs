//! Both ends of a copy in one process, without a network.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::read::AHEAD;
use super::receive::Reception;
use super::root::{Root, make_folder};
use super::send::{ASK_AFTER, ASK_FIRST_AFTER, Peer, Report, SILENCE_MARGIN, SendError, send};
use super::walk::Source;
use super::wire::{CHUNK_BYTES, Reply, Request};

/// The receiver, called directly.
struct Direct {
    root: Arc<Root>,
    reception: Option<Reception>,
    replies: VecDeque<Reply>,
}

impl Direct {
    fn new(folder: &Path) -> Self {
        let root = Arc::new(Root::open(folder).unwrap());
        Self {
            root,
            reception: None,
            replies: VecDeque::new(),
        }
    }
}

impl Peer for Direct {
    type Error = Infallible;

    fn send(&mut self, request: &Request) -> Result<(), Infallible> {
        let (head, body) = request.encode(1);
        let request = Request::decode(&head, body).unwrap();
        let mut replies = Vec::new();
        match (request, &mut self.reception) {
            (Request::Begin { many, path }, _) => {
                match Reception::begin(Arc::clone(&self.root), many, &path) {
                    Ok(reception) => {
                        self.reception = Some(reception);
                        replies.push(Reply::Opened);
                    }
                    Err(error) => replies.push(Reply::Refused {
                        reason: error.to_string(),
                    }),
                }
            }
            (request, Some(reception)) => reception.handle(request, &mut replies).unwrap(),
            (request, None) => panic!("{request:?} without a copy"),
        }
        self.replies.extend(replies);
        Ok(())
    }

    fn receive(&mut self, _: Duration) -> Result<Option<Reply>, Infallible> {
        Ok(self.replies.pop_front())
    }

    fn moves(&mut self) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn link_timeout(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// A receiver that answers so many questions, and then says nothing; nobody really waits for it.
struct Mute {
    answers: usize,
    asked: Vec<Request>,
    waited: Duration,
    /// How often what was sent has moved when somebody looks.
    moves: usize,
}

impl Peer for Mute {
    type Error = Infallible;

    fn send(&mut self, request: &Request) -> Result<(), Infallible> {
        self.asked.push(request.clone());
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Reply>, Infallible> {
        self.waited += patience;
        if patience.is_zero() || self.waited < Duration::from_secs(1) || self.answers == 0 {
            return Ok(None);
        }
        self.answers -= 1;
        self.waited = Duration::ZERO;
        Ok(Some(Reply::Alive))
    }

    fn moves(&mut self) -> Result<bool, Infallible> {
        let moves = self.moves > 0;
        self.moves -= usize::from(moves);
        Ok(moves)
    }

    fn link_timeout(&self) -> Duration {
        Duration::from_secs(3)
    }
}

struct Places {
    _place: tempfile::TempDir,
    from: PathBuf,
    to: PathBuf,
}

fn places() -> Places {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    Places {
        _place: place,
        from,
        to,
    }
}

fn copy(sources: &[PathBuf], to: &Path, path: &str) -> (Report, Result<(), SendError<Infallible>>) {
    copy_with(sources, to, path, |_| {})
}

/// Copies, and calls `progress` for each message.
fn copy_with(
    sources: &[PathBuf],
    to: &Path,
    path: &str,
    progress: impl FnMut(u64),
) -> (Report, Result<(), SendError<Infallible>>) {
    let sources = Source::all(sources).unwrap();
    let mut report = Report::default();
    let path = Bytes::copy_from_slice(path.as_bytes());
    let result = send(&mut Direct::new(to), &sources, path, &mut report, progress);
    (report, result)
}

fn copied(sources: &[PathBuf], to: &Path, path: &str) -> Report {
    let (report, result) = copy(sources, to, path);
    result.unwrap();
    report
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_tree_arrives_as_it_is() {
    let Places { from, to, .. } = &places();
    let tree = from.join("tree");
    fs::create_dir_all(tree.join("inner/empty")).unwrap();
    fs::write(tree.join("inner/nothing"), b"").unwrap();
    let large: Vec<u8> = (0..=250).cycle().take(3 * CHUNK_BYTES + 17).collect();
    fs::write(tree.join("large"), &large).unwrap();
    for number in 0..40 {
        fs::write(tree.join(format!("inner/{number}")), number.to_string()).unwrap();
    }
    fs::set_permissions(tree.join("large"), fs::Permissions::from_mode(0o6711)).unwrap();
    fs::set_permissions(tree.join("inner"), fs::Permissions::from_mode(0o555)).unwrap();

    let report = copied(std::slice::from_ref(&tree), to, "");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!((report.files, report.folders), (42, 3));
    assert_eq!(fs::read(to.join("tree/large")).unwrap(), large);
    assert_eq!(fs::read(to.join("tree/inner/nothing")).unwrap(), b"");
    assert_eq!(fs::read(to.join("tree/inner/39")).unwrap(), b"39");
    assert!(names(&to.join("tree/inner/empty")).is_empty());
    assert_eq!(mode(&to.join("tree/large")), 0o711);
    assert_eq!(mode(&to.join("tree/inner")), 0o555);
    assert_eq!(names(&to.join("tree")), ["inner", "large"]);
    // Who is not root removes them with the rest.
    for place in [tree, to.join("tree")] {
        fs::set_permissions(place.join("inner"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn where_a_copy_goes_is_as_with_cp() {
    let Places { from, to, .. } = &places();
    let (a, b) = (from.join("a"), from.join("b"));
    fs::write(&a, b"a").unwrap();
    fs::create_dir(&b).unwrap();
    fs::write(b.join("c"), b"c").unwrap();
    fs::create_dir(to.join("there")).unwrap();

    copied(std::slice::from_ref(&a), to, "");
    copied(std::slice::from_ref(&a), to, "there");
    copied(std::slice::from_ref(&a), to, "named");
    copied(std::slice::from_ref(&a), to, "deep/er/named");
    copied(std::slice::from_ref(&a), to, "made/");
    copied(std::slice::from_ref(&b), to, "renamed");
    copied(&[a.clone(), b.clone()], to, "several");
    let files = [
        "a",
        "there/a",
        "named",
        "deep/er/named",
        "made/a",
        "renamed/c",
        "several/a",
        "several/b/c",
    ];
    for file in files {
        assert!(to.join(file).is_file(), "{file}");
    }

    // A second time replaces.
    fs::write(&a, b"changed").unwrap();
    copied(std::slice::from_ref(&a), to, "there");
    assert_eq!(fs::read(to.join("there/a")).unwrap(), b"changed");

    // A file in the way of a folder, and the other way round.
    let (_, result) = copy(&[a.clone(), b], to, "named");
    assert!(matches!(result, Err(SendError::Refused(reason)) if reason.contains("not a folder")));
    fs::create_dir(to.join("in-the-way")).unwrap();
    fs::create_dir(to.join("in-the-way/a")).unwrap();
    let report = copied(&[a], to, "in-the-way");
    assert!(
        report.failures[0].1.contains("folder has this name"),
        "{:?}",
        report.failures
    );
}

#[test]
fn nothing_leaves_the_folder() {
    let Places { from, to, .. } = &places();
    let file = from.join("file");
    fs::write(&file, b"file").unwrap();
    let served = to.join("served");
    fs::create_dir(&served).unwrap();
    for path in ["..", "../x", "/etc", "a/../../x", "."] {
        let (_, result) = copy(std::slice::from_ref(&file), &served, path);
        assert!(matches!(result, Err(SendError::Refused(_))), "{path}");
    }
    // Links that were there before lead nowhere.
    symlink(to, served.join("out")).unwrap();
    symlink(to.join("victim"), served.join("dangling")).unwrap();
    fs::create_dir(from.join("out")).unwrap();
    fs::write(from.join("out/victim"), b"attack").unwrap();
    for path in ["out", "out/", "out/victim", "dangling", "dangling/x"] {
        let (report, result) = copy(std::slice::from_ref(&file), &served, path);
        assert!(result.is_err() || report.failed() > 0, "{path}");
    }
    let report = copied(&[from.join("out")], &served, "");
    assert_eq!(report.failed(), 2, "{:?}", report.failures);
    assert_eq!(names(to), ["served"]);
    assert_eq!(names(&served), ["dangling", "out"]);
}

#[test]
fn what_cannot_be_copied_is_named_and_the_rest_arrives() {
    let Places { from, to, .. } = &places();
    fs::write(from.join("file"), b"file").unwrap();
    symlink("file", from.join("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, from.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let report = copied(std::slice::from_ref(from), to, "");
    assert_eq!((report.files, report.folders), (1, 1));
    let mut failures = report.failures;
    failures.sort();
    assert_eq!(failures.len(), 2);
    assert_eq!(failures[0].0, from.join("link"));
    assert!(failures[0].1.contains("link"));
    assert!(failures[1].1.contains("pipe"));
    // A link that the command line names is followed.
    let report = copied(&[from.join("link")], to, "");
    assert_eq!(report.files, 1);
    assert_eq!(fs::read(to.join("link")).unwrap(), b"file");
}

#[test]
fn what_is_in_a_folder_that_cannot_be_made_says_so() {
    let Places { from, to, .. } = &places();
    fs::create_dir(from.join("folder")).unwrap();
    fs::write(from.join("folder/file"), b"file").unwrap();
    fs::create_dir(to.join("from")).unwrap();
    fs::write(to.join("from/folder"), b"in the way").unwrap();
    let report = copied(std::slice::from_ref(from), to, "");
    let mut failures = report.failures;
    failures.sort();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert!(failures[0].1.contains("is a link or a file"));
    assert_eq!(failures[1].0, from.join("folder/file"));
    assert!(failures[1].1.contains("could not be made"), "{failures:?}");
}

/// Copies a file that somebody changes when it has begun.
fn copy_of_what_changes(change: impl Fn(&File)) {
    let Places { from, to, .. } = &places();
    let path = from.join("file");
    // More than the reader reads ahead.
    fs::write(&path, vec![1; 3 * AHEAD * CHUNK_BYTES]).unwrap();
    fs::write(to.join("file"), b"older").unwrap();
    let mut file = Some(File::options().append(true).open(&path).unwrap());
    let (report, result) = copy_with(std::slice::from_ref(&path), to, "", |_| {
        if let Some(file) = file.take() {
            change(&file);
        }
    });
    result.unwrap();
    let reason = "changed while it was copied; copy it again".to_owned();
    assert_eq!(report.failures, [(path, reason)]);
    assert_eq!((report.files, report.bytes), (0, 0));
    assert_eq!(names(to), ["file"]);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"older");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_not_copied() {
    copy_of_what_changes(|file| file.set_len(1).unwrap());
    copy_of_what_changes(|mut file| file.write_all(b"more").unwrap());
    // Overwritten: only the time tells.
    copy_of_what_changes(|file| file.set_modified(SystemTime::UNIX_EPOCH).unwrap());
    // Nor does that, where it is set back.
    copy_of_what_changes(|mut file| {
        let before = file.metadata().unwrap();
        file.write_all(b"more").unwrap();
        file.set_len(before.len()).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
    });
}

#[test]
fn what_arrives_has_the_size_that_was_announced() {
    let Places { to, .. } = &places();
    let root = Arc::new(Root::open(to).unwrap());
    let mut replies = Vec::new();
    let mut reception = Reception::begin(root, false, b"").unwrap();
    let bytes = Bytes::from_static(b"some");
    for request in [
        Request::File {
            entry: 1,
            mode: 0o600,
            size: 6,
            path: Bytes::from_static(b"file"),
        },
        Request::Chunk {
            entry: 1,
            bytes: bytes.clone(),
        },
        Request::Finish {
            entry: 1,
            size: 4,
            digest: Sha256::digest(&bytes).into(),
        },
        Request::End,
    ] {
        reception.handle(request, &mut replies).unwrap();
    }
    assert!(matches!(&replies[0], Reply::Failed { entry: 1, reason } if reason.contains("4 of 6")));
    assert!(names(to).is_empty());
}

#[test]
fn a_copy_that_breaks_off_leaves_no_half_file() {
    let Places { to, .. } = &places();
    let root = Arc::new(Root::open(to).unwrap());
    let mut replies = Vec::new();
    let mut reception = Reception::begin(root, false, b"").unwrap();
    let path = Bytes::from_static(b"file");
    let file = Request::File {
        entry: 1,
        mode: 0o600,
        size: 8,
        path,
    };
    reception.handle(file, &mut replies).unwrap();
    let bytes = Bytes::from_static(b"half");
    reception
        .handle(Request::Chunk { entry: 1, bytes }, &mut replies)
        .unwrap();
    assert_eq!(names(to).len(), 1);
    drop(reception);
    assert!(names(to).is_empty());
    assert!(replies.is_empty());
}

#[test]
fn a_wrong_digest_or_size_is_noticed() {
    let Places { to, .. } = &places();
    let root = Arc::new(Root::open(to).unwrap());
    let mut replies = Vec::new();
    let mut reception = Reception::begin(root, false, b"").unwrap();
    for (entry, size) in [(1, 4), (2, 5)] {
        let path = Bytes::from_static(b"file");
        let bytes = Bytes::from_static(b"some");
        let finish = Request::Finish {
            entry,
            size,
            digest: [0; 32],
        };
        for request in [
            Request::File {
                entry,
                mode: 0o600,
                size,
                path,
            },
            Request::Chunk { entry, bytes },
            finish,
        ] {
            reception.handle(request, &mut replies).unwrap();
        }
    }
    assert!(matches!(&replies[0], Reply::Failed { entry: 1, reason } if reason.contains("digest")));
    assert!(matches!(&replies[1], Reply::Failed { entry: 2, reason } if reason.contains("4 of 5")));
    assert!(names(to).is_empty());
}

#[test]
fn messages_out_of_place_are_noticed() {
    let Places { to, .. } = &places();
    let root = Arc::new(Root::open(to).unwrap());
    let begin = || Reception::begin(Arc::clone(&root), false, b"").unwrap();
    let path = || Bytes::from_static(b"x");
    let file = |entry| Request::File {
        entry,
        mode: 0o600,
        size: 0,
        path: path(),
    };
    let folder = |entry| Request::Folder {
        entry,
        mode: 0o700,
        path: path(),
    };
    let wrong = [
        vec![Request::Chunk {
            entry: 1,
            bytes: path(),
        }],
        vec![Request::Finish {
            entry: 1,
            size: 0,
            digest: [0; 32],
        }],
        vec![Request::Leave { entry: 1 }],
        vec![file(1), file(2)],
        vec![file(1), Request::End],
        vec![
            file(1),
            Request::Chunk {
                entry: 2,
                bytes: path(),
            },
        ],
        vec![folder(1), Request::Leave { entry: 2 }],
        vec![folder(1), Request::End],
        vec![Request::Begin {
            many: false,
            path: path(),
        }],
    ];
    for messages in wrong {
        let mut reception = begin();
        let mut replies = Vec::new();
        let results: Vec<_> = messages
            .iter()
            .map(|message| reception.handle(message.clone(), &mut replies))
            .collect();
        assert!(results.last().unwrap().is_err(), "{messages:?}");
        assert!(
            results[..results.len() - 1].iter().all(Result::is_ok),
            "{messages:?}"
        );
    }
}

#[test]
fn who_says_nothing_is_given_up_after_the_link_timeout() {
    let Places { from, .. } = &places();
    let file = from.join("file");
    fs::write(&file, b"file").unwrap();
    let sources = Source::all(&[file]).unwrap();
    // What has moved is no answer, and not silence either.
    for (answers, moves) in [(0, 0), (1, 0), (3, 0), (0, 5)] {
        let mut mute = Mute {
            answers,
            asked: Vec::new(),
            waited: Duration::ZERO,
            moves,
        };
        let mut report = Report::default();
        let result = send(&mut mute, &sources, Bytes::new(), &mut report, |_| {});
        let limit = mute.link_timeout() + SILENCE_MARGIN;
        assert!(matches!(result, Err(SendError::Silent(silence)) if silence == limit));
        // Waits are counted, not what the clock says: it has hardly moved.
        let moved = ASK_FIRST_AFTER * u32::try_from(moves).unwrap();
        assert!(mute.waited >= limit + moved, "{:?}", mute.waited);
        assert!(mute.waited < limit + moved + ASK_AFTER, "{:?}", mute.waited);
        assert_eq!(mute.asked.last(), Some(&Request::Ask));
    }
}

#[test]
fn sources_need_names_of_their_own() {
    let Places { from, .. } = &places();
    fs::create_dir(from.join("a")).unwrap();
    fs::create_dir(from.join("a/a")).unwrap();
    assert!(Source::all(&[from.join("a"), from.join("a/a")]).is_err());
    assert!(Source::all(&[PathBuf::from("/")]).is_err());
    assert!(Source::all(&[from.join("missing")]).is_err());
    assert!(Source::all(&[from.join("a/..")]).is_ok());
}

#[test]
fn a_served_folder_that_was_moved_or_replaced_receives_nothing_more() {
    let place = tempfile::tempdir().unwrap();
    let [served, elsewhere] = ["in", "elsewhere"].map(|name| place.path().join(name));
    fs::create_dir(&served).unwrap();
    let root = Arc::new(Root::open(&served).unwrap());
    let begin = || Reception::begin(Arc::clone(&root), false, b"x").map(drop);
    begin().unwrap();
    fs::rename(&served, &elsewhere).unwrap();
    let gone = begin().unwrap_err();
    fs::create_dir(&served).unwrap();
    let replaced = begin().unwrap_err();
    for refused in [gone, replaced] {
        let told = refused.to_string();
        assert!(told.contains("restart that node"), "{told}");
    }
    // Where others look for it, it is received again.
    fs::remove_dir(&served).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &served).unwrap();
    begin().unwrap();
}

#[test]
fn a_folder_that_is_being_filled_has_its_rights_and_the_group_of_the_one_around_it() {
    let parent = tempfile::tempdir().unwrap();
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o2755)).unwrap();
    let opened = std::os::fd::OwnedFd::from(File::open(parent.path()).unwrap());
    let (_, made) = make_folder(&opened, "new".as_ref(), 0o575).unwrap();
    assert!(made);
    let mode = || fs::metadata(parent.path().join("new")).unwrap().mode();
    // The owner may write while it is filled, and a mask takes nothing away.
    assert_eq!(mode() & 0o7777, 0o2775);
    let (_, made) = make_folder(&opened, "new".as_ref(), 0o500).unwrap();
    assert!(!made && mode() & 0o7777 == 0o2775, "it was there");
}
