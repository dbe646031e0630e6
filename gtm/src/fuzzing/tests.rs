//! Replays every corpus, and goes a little way from it.

use std::fs;
use std::path::{Path, PathBuf};

use super::TARGETS;

/// Changed copies of each input.
const CHANGED: u64 = 200;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut inputs: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}

#[test]
fn corpora_hold() {
    for (name, target) in TARGETS {
        for (path, bytes) in corpus(name) {
            println!("{}", path.display());
            target(&bytes);
        }
    }
}

#[test]
fn so_do_inputs_near_them() {
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        for (number, (path, bytes)) in inputs.iter().enumerate() {
            println!("near {}", path.display());
            for change in 0..CHANGED {
                let seed = change * 7919 + u64::try_from(number).unwrap();
                let (_, other) = &inputs[usize::try_from(seed).unwrap() % inputs.len()];
                target(&changed(bytes, other, seed));
            }
        }
    }
}

/// A few bytes of `bytes` changed, moved, or followed by some of `other`.
fn changed(bytes: &[u8], other: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    let mut changed = bytes.to_vec();
    for _ in 0..=random(4) {
        let at = random(changed.len());
        match random(5) {
            0 => changed.truncate(at),
            1 => changed.extend_from_slice(&other[random(other.len())..]),
            2 => changed = [&changed[at..], &changed[..at]].concat(),
            _ if changed.is_empty() => {}
            3 => changed[at] = u8::try_from(random(256)).unwrap(),
            _ => changed[at] ^= 1 << random(8),
        }
    }
    changed
}
