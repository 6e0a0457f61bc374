//! The seeds are what the code makes, and every target takes its own. With `SEEDS=write` in the environment they are written
//! anew, after the wire has changed.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tidelock_fuzz::TARGETS;

/// What is allocated is counted for the whole process, so that tests which run targets take turns.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn seeds_are_current_and_pass() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let write = std::env::var_os("SEEDS").is_some_and(|v| v == "write");
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target.name);
        let seeds = (target.seeds)();
        if write {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
        }
        for (i, seed) in seeds.iter().enumerate() {
            let path = folder.join(format!("{i:02}"));
            if write {
                fs::write(&path, seed).unwrap();
            }
            let stored = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; run with SEEDS=write", path.display()));
            assert_eq!(&stored, seed, "{} is out of date; run with SEEDS=write", path.display());
            (target.run)(seed);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), seeds.len(), "more files than seeds in {}", folder.display());
    }
}

/// A little of what libFuzzer does, for a target whose inputs are cheap: seeds with bytes changed, left out and joined.
#[test]
fn changed_seeds_of_definitions_pass() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seeds = tidelock_fuzz::definitions::seeds();
    let mut state = 1u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n.max(1)
    };
    for round in 0..1000 {
        let (first, second) = (&seeds[below(seeds.len())], &seeds[below(seeds.len())]);
        let mut input = [&first[..below(first.len() + 1)], &second[below(second.len() + 1)..]].concat();
        for _ in 0..below(6) {
            let at = below(input.len());
            if let Some(byte) = input.get_mut(at) {
                *byte = below(256) as u8;
            }
        }
        let run = std::panic::catch_unwind(|| tidelock_fuzz::definitions::run(&input));
        assert!(run.is_ok(), "round {round}: {input:?}");
    }
}

#[test]
fn every_target_has_a_binary() {
    let manifest = include_str!("../Cargo.toml");
    for target in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{}.rs\"", target.name)), "{}", target.name);
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}
