//! What the repository promises about itself and no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

/// A file is one idea; one that is longer than this is several.
const LONGEST_FILE_LINES: usize = 1000;

/// The roots of the libraries and of the bench that have unsafe code.
const UNSAFE_ROOTS: [&str; 3] = [
    "crc32c/src/lib.rs",
    "tm/src/lib.rs",
    "benches/src/bin/relay/main.rs",
];

/// The islands in them: the only files that hold unsafe code.
const ISLANDS: [&str; 30] = [
    "benches/src/bin/relay/uring.rs",
    "crc32c/src/wide.rs",
    "tm/src/copying/fetching.rs",
    "tm/src/copying/mod.rs",
    "tm/src/copying/streaming.rs",
    "tm/src/copying/unit_writer.rs",
    "tm/src/piece.rs",
    "tm/src/pooled.rs",
    "tm/src/room.rs",
    "tm/src/scheduling.rs",
    "tm/src/slot.rs",
    "tm/src/tcp/sys.rs",
    "tm/src/local/credentials.rs",
    "tm/src/local/memory.rs",
    "tm/src/local/loans.rs",
    "tm/src/local/arrivals.rs",
    "tm/src/hsl/fabric/abi.rs",
    "tm/src/hsl/fabric/domain.rs",
    "tm/src/hsl/fabric/endpoint.rs",
    "tm/src/hsl/fabric/handlers.rs",
    "tm/src/hsl/fabric/library.rs",
    "tm/src/hsl/fabric/object.rs",
    "tm/src/hsl/fabric/queue.rs",
    "tm/src/hsl/fabric/region.rs",
    "tm/src/hsl/fabric/registrar.rs",
    "tm/src/hsl/host/card.rs",
    "tm/src/hsl/host/foreign.rs",
    "tm/src/hsl/lent_out.rs",
    "tm/src/hsl/registration/monitor.rs",
    "tm/src/hsl/registration/tests/pages.rs",
];

/// Never read: what is made here, and what is not ours.
const SKIPPED: [&str; 3] = ["target", ".git", "corpus"];

/// Text in which every rule holds; split, so that this file does not break them.
const FORBIDDEN: [(&str, &str); 7] = [
    (concat!("to", "do!"), "unfinished"),
    (concat!("unimple", "mented!"), "unfinished"),
    (concat!("FIX", "ME"), "unfinished"),
    (concat!("dbg", "!("), "left over from debugging"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
];

struct Source {
    /// Relative to the top of the repository.
    path: PathBuf,
    text: String,
}

impl Source {
    fn is(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|has| has == extension)
    }

    fn name(&self) -> &str {
        self.path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All text of ours.
fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders = vec![top()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of ours can be listed") {
            let path = entry.expect("a folder of ours can be listed").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if SKIPPED.contains(&name.as_str()) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let ours = ["rs", "md", "toml", "sh"].map(std::ffi::OsStr::new);
            if path.extension().is_some_and(|has| ours.contains(&has)) || path.ends_with(".ci/run")
            {
                let text = fs::read_to_string(&path).expect("text of ours is UTF-8");
                let path = path
                    .strip_prefix(top())
                    .expect("it was found below the top")
                    .to_owned();
                sources.push(Source { path, text });
            }
        }
    }
    assert!(sources.len() > 10, "the repository was not found");
    sources
}

/// Fails with all complaints at once.
fn none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn text_is_clean() {
    let mut complaints = Vec::new();
    for source in sources() {
        let path = source.path.display();
        if source.is("rs") && source.text.lines().count() > LONGEST_FILE_LINES {
            complaints.push(format!("{path}: over {LONGEST_FILE_LINES} lines"));
        }
        if !source.text.ends_with('\n') || source.text.ends_with("\n\n") {
            complaints.push(format!("{path}: must end with one newline"));
        }
        for (index, line) in source.text.lines().enumerate() {
            let place = format!("{path}:{}", index + 1);
            if line.contains('\t') {
                complaints.push(format!("{place}: a tab"));
            }
            if line.trim_end() != line {
                complaints.push(format!("{place}: space at the end"));
            }
            for (text, why) in FORBIDDEN {
                if line.contains(text) {
                    complaints.push(format!("{place}: {text} ({why})"));
                }
            }
        }
    }
    none(&complaints);
}

#[test]
fn unsafe_code_stands_on_named_islands() {
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|source| source.is("rs")) {
        let path = source.path.display();
        let folder = source
            .path
            .iter()
            .next()
            .and_then(|first| first.to_str())
            .unwrap_or_default();
        // Roots of libraries and commands; a test or an example is a crate of its own too,
        // and has nothing to forbid it but the island rule below.
        let inner = source.path.strip_prefix(folder).unwrap_or(&source.path);
        let is_root = inner == Path::new("src/lib.rs")
            || inner.starts_with("src/bin")
                && (source.name() == "main.rs" || inner.components().count() == 3);
        let has_island = UNSAFE_ROOTS
            .iter()
            .any(|root| source.path == Path::new(root));
        let needed = match has_island {
            true => "#![deny(unsafe_code)]",
            false => "#![forbid(unsafe_code)]",
        };
        if is_root && !source.text.contains(needed) {
            complaints.push(format!("{path}: lacks {needed}"));
        }

        if ISLANDS
            .iter()
            .any(|island| source.path == Path::new(island))
        {
            continue;
        }
        for (index, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if ["{", "fn", "impl", "extern"]
                .iter()
                .any(|then| code.contains(&format!("{} {then}", concat!("un", "safe"))))
            {
                complaints.push(format!("{path}:{}: unsafe outside an island", index + 1));
            }
        }
    }
    none(&complaints);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|source| source.is("md")) {
        let folder = top().join(&source.path);
        let folder = folder.parent().unwrap_or(Path::new("."));
        for (index, line) in source.text.lines().enumerate() {
            for target in links(line) {
                let file = target.split('#').next().unwrap_or_default();
                let elsewhere =
                    file.is_empty() || file.contains("://") || file.starts_with("mailto:");
                if !elsewhere && !folder.join(file).exists() {
                    let path = source.path.display();
                    complaints.push(format!("{path}:{}: {file} does not exist", index + 1));
                }
            }
        }
    }
    none(&complaints);
}

/// The targets of `[text](target)` in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
}

#[test]
fn links_are_found() {
    let found: Vec<_> = links("see [a](b.md), [c](d.md#e) and f(g)").collect();
    assert_eq!(found, ["b.md", "d.md#e"]);
}

#[test]
fn every_step_of_ci_is_a_script_that_can_run() {
    use std::os::unix::fs::PermissionsExt;

    let run = fs::read_to_string(top().join(".ci/run")).unwrap();
    let line = run
        .lines()
        .find_map(|line| line.strip_prefix("steps=("))
        .unwrap();
    let steps: Vec<_> = line.trim_end_matches(')').split_whitespace().collect();
    assert!(!steps.is_empty());
    for step in &steps {
        let script = top().join("ci").join(format!("{step}.sh"));
        let mode = fs::metadata(&script).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{} cannot be run", script.display());
    }
    for entry in fs::read_dir(top().join("ci")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            steps.contains(&name.as_str()),
            "ci/{name}.sh is a step of nothing"
        );
    }
}
