//! The seeds are what the code makes, and every target takes its own. With `SEEDS=write` in the environment they are written
//! anew, after the wire has changed.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use tidelock_fuzz::TARGETS;

#[test]
fn seeds_are_current_and_pass() {
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

#[test]
fn every_target_has_a_binary() {
    let manifest = include_str!("../Cargo.toml");
    for target in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{}.rs\"", target.name)), "{}", target.name);
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}
