//! The direction of dependencies: `netcore ← replication ← adapters` and `netcore ← transports ← adapters`. Read from the
//! manifests and the lock file, so that it needs no tool and no network.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A crate of this workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Crate {
    folder: String,
    name: String,
    /// What it is built from: dependencies, those of its build script, those of single platforms.
    normal: BTreeSet<String>,
    /// What its tests are built from.
    dev: BTreeSet<String>,
}

/// Tidelock's crates that a crate in this folder may be built from, and those that its tests may be; `None`: any.
#[allow(clippy::type_complexity)]
fn allowed(folder: &str) -> Option<(Option<&'static [&'static str]>, &'static [&'static str])> {
    const TRANSPORTS: &[&str] = &["tidelock-netcore", "tidelock-threads"];
    const CORE: &[&str] = &["tidelock-netcore", "tidelock-derive"];
    const TESTS: &[&str] = &["tidelock-loopback", "tidelock-conformance"];
    Some(match folder {
        "netcore" | "replication/derive" => (Some(&[]), &[]),
        "replication" => (Some(CORE), &["tidelock-loopback"]),
        "transports/threads" => (Some(&[]), &[]),
        f if f.starts_with("transports/") => (Some(TRANSPORTS), TESTS),
        f if f.starts_with("adapters/") => (None, &[]),
        "examples" | "benches" | "docs/book" => (None, &[]),
        _ => return None,
    })
}

/// What nothing in the core may need, not even by way of others.
const NEVER_IN_THE_CORE: &[&str] = &["tokio", "quinn", "quinn-proto", "mio", "socket2", "async-std", "smol"];

fn violations(crates: &[Crate], locked: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let folders: BTreeMap<&str, &str> = crates.iter().map(|c| (c.name.as_str(), c.folder.as_str())).collect();
    let mut found = Vec::new();
    for c in crates {
        let Some((normal, dev)) = allowed(&c.folder) else {
            found.push(format!("{}: this folder belongs to no layer", c.folder));
            continue;
        };
        for (name, of_tests) in c.normal.iter().map(|n| (n, false)).chain(c.dev.iter().map(|n| (n, true))) {
            let Some(folder) = folders.get(name.as_str()) else { continue };
            let fits = normal.is_none_or(|n| n.contains(&name.as_str())) || of_tests && dev.contains(&name.as_str());
            let adapter = folder.starts_with("adapters/") && c.folder != "examples";
            if !fits || adapter {
                let how = if of_tests { " in its tests" } else { "" };
                found.push(format!("{} may not depend on {name}{how}", c.folder));
            }
        }
        if c.folder == "netcore" || c.folder.starts_with("replication") {
            let reached = closure(&c.name, locked);
            let never = NEVER_IN_THE_CORE.iter().filter(|n| reached.contains(**n));
            found.extend(never.map(|n| format!("{} comes to depend on {n}", c.folder)));
        }
    }
    found
}

fn closure(of: &str, locked: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![of.to_owned()];
    while let Some(name) = open.pop() {
        open.extend(locked.get(&name).into_iter().flatten().filter(|n| reached.insert((*n).clone())).cloned());
    }
    reached
}

fn parse_manifest(folder: &str, text: &str) -> Crate {
    let mut c = Crate { folder: folder.to_owned(), ..Crate::default() };
    let mut section = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_matches(['[', ']']).to_owned();
            if let Some((table, name)) = section.rsplit_once("dependencies.") {
                insert(&mut c, table, name);
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
        let (key, value) = (key.trim(), value.trim());
        if section == "package" && key == "name" {
            c.name = value.trim_matches('"').to_owned();
        }
        if let Some(table) = section.strip_suffix("dependencies") {
            let renamed = value.split_once("package = \"").and_then(|(_, rest)| rest.split_once('"')).map(|r| r.0);
            insert(&mut c, table, renamed.unwrap_or(key.split('.').next().unwrap_or(key)));
        }
        if let Some((table, _)) = section.rsplit_once("dependencies.").filter(|_| key == "package") {
            insert(&mut c, table, value.trim_matches('"'));
        }
    }
    c
}

fn insert(c: &mut Crate, table: &str, name: &str) {
    let set = if table.ends_with("dev-") { &mut c.dev } else { &mut c.normal };
    set.insert(name.trim_matches('"').to_owned());
}

/// Names to names of dependencies; several versions of one crate count as one.
fn parse_lock(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut locked = BTreeMap::<String, BTreeSet<String>>::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(n) = line.strip_prefix("name = ") {
            name = n.trim_matches('"').to_owned();
        } else if let Some(dependency) = line.strip_prefix(" \"") {
            let dependency = dependency.split(['"', ' ']).next().unwrap_or_default();
            locked.entry(name.clone()).or_default().insert(dependency.to_owned());
        }
    }
    locked
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the examples lie in the workspace").to_owned()
}

fn crates(root: &Path, folder: &Path, into: &mut Vec<Crate>) {
    let manifest = folder.join("Cargo.toml");
    let relative = folder.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
    if let Ok(text) = fs::read_to_string(manifest).map(|t| t.replace("\r\n", "\n"))
        && !relative.is_empty()
    {
        if text.contains("\n[workspace]\n") {
            return; // not of this workspace: the fuzz targets
        }
        into.push(parse_manifest(&relative, &text));
    }
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !name.starts_with('.') && name != "target" && name != "src" && name != "tests" {
            crates(root, &entry.path(), into);
        }
    }
}

#[test]
fn dependencies_point_downwards() {
    let root = root();
    let mut found = Vec::new();
    crates(&root, &root, &mut found);
    let lock = fs::read_to_string(root.join("Cargo.lock")).expect("the lock file is part of the tree");
    let locked = parse_lock(&lock);
    for folder in ["netcore", "replication", "replication/derive", "transports/loopback", "transports/quic", "examples"] {
        let c = found.iter().find(|c| c.folder == folder).unwrap_or_else(|| panic!("{folder} was not found"));
        assert!(locked.contains_key(&c.name) || c.normal.is_empty(), "{} is not in the lock file", c.name);
    }
    let replication = found.iter().find(|c| c.folder == "replication").expect("it was found above");
    assert!(replication.normal.contains("tidelock-netcore"), "the manifests are not understood: {replication:?}");
    let wrong = violations(&found, &locked);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_wrong_direction_is_found() {
    let of = |folder: &str, name: &str, dependencies: &str| {
        parse_manifest(folder, &format!("[package]\nname = \"{name}\"\n\n[dependencies]\n{dependencies}\n"))
    };
    let lock = "[[package]]\nname = \"tidelock-netcore\"\ndependencies = [\n \"between\",\n]\n\n\
                [[package]]\nname = \"between\"\ndependencies = [\n \"tokio 1.0.0\",\n]\n";
    let crates = [
        of("netcore", "tidelock-netcore", "tidelock.workspace = true"),
        of(
            "replication",
            "tidelock",
            "tidelock-netcore = { workspace = true }\nq = { package = \"tidelock-quic\", version = \"1\" }",
        ),
        of("transports/quic", "tidelock-quic", "[target.'cfg(unix)'.dependencies.tidelock]\nworkspace = true"),
        of(
            "transports/web",
            "tidelock-web",
            "\n[dev-dependencies]\ntidelock-conformance = { workspace = true }\ntidelock = { path = \"x\" }",
        ),
        of("transports/conformance", "tidelock-conformance", "tidelock-netcore = { workspace = true }"),
        of("adapters/a", "tidelock-a", "tidelock = { workspace = true }\ntidelock-b = { workspace = true }"),
        of("adapters/b", "tidelock-b", "# tidelock-a = { workspace = true }"),
        of("examples", "tidelock-examples", "tidelock-a = { workspace = true }"),
        of("elsewhere", "tidelock-elsewhere", ""),
    ];
    assert_eq!(
        violations(&crates, &parse_lock(lock)),
        [
            "netcore may not depend on tidelock",
            "netcore comes to depend on tokio",
            "replication may not depend on tidelock-quic",
            "transports/quic may not depend on tidelock",
            "transports/web may not depend on tidelock in its tests",
            "adapters/a may not depend on tidelock-b",
            "elsewhere: this folder belongs to no layer",
        ]
    );
}
