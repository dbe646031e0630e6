//! Replaying a corpus, and going a little way from it.

use std::fs;
use std::io;
use std::path::Path;

use super::Target;

/// Changed copies of each input.
const CHANGED: u64 = 200;

/// Gives `target` every input of its corpus, and inputs near them. The corpus of `name` is
/// the folder of that name in `fuzz/corpus`, seen from `crate_folder`.
///
/// # Panics
/// Where the target does, or when its corpus is empty.
pub fn replay(crate_folder: &str, name: &str, target: Target) {
    let inputs = corpus(crate_folder, name);
    for (number, (file, bytes)) in inputs.iter().enumerate() {
        println!("{name}/{file}");
        target(bytes);
        for change in 0..CHANGED {
            let seed = change * 7919 + number as u64;
            let (_, other) = &inputs[random_below(seed, inputs.len())];
            target(&changed(bytes, other, seed));
        }
    }
}

fn corpus(crate_folder: &str, name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(crate_folder).join("../fuzz/corpus").join(name);
    let inputs = read_folder(&folder).unwrap_or_else(|error| {
        panic!("{}: {error}", folder.display());
    });
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}

/// Every file of a folder, by name.
fn read_folder(folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((name, fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}

/// A few bytes of `bytes` changed, moved, or followed by some of `other`.
fn changed(bytes: &[u8], other: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut random = move |below: usize| {
        state = next(state);
        random_below(state, below)
    };
    let mut changed = bytes.to_vec();
    for _ in 0..=random(4) {
        let at = random(changed.len());
        match random(5) {
            0 => changed.truncate(at),
            1 => changed.extend_from_slice(&other[random(other.len())..]),
            2 => changed = [&changed[at..], &changed[..at]].concat(),
            _ if changed.is_empty() => {}
            3 => changed[at] = u8::try_from(random(256)).unwrap_or(u8::MAX),
            _ => changed[at] ^= 1 << random(8),
        }
    }
    changed
}

/// A step of a linear congruential generator: the same changes in every run.
fn next(state: u64) -> u64 {
    state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f)
}

fn random_below(state: u64, below: usize) -> usize {
    let below = below.max(1) as u64;
    usize::try_from((state >> 33) % below).unwrap_or(0)
}
