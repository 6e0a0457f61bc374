//! The book hangs together: every page is listed and its examples are run, links lead somewhere, tables say what the code says.
#![allow(missing_docs, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tidelock::metrics::{METRICS, MetricKind};
use tidelock::netcore::limits;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).replace("\r\n", "\n")
}

/// Every page, relative to the source.
fn pages() -> BTreeSet<String> {
    fn look(folder: &Path, into: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                look(&path, into);
            } else if path.extension().is_some_and(|e| e == "md") {
                let relative = path.strip_prefix(source()).expect("below the source");
                into.insert(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    let mut all = BTreeSet::new();
    look(&source(), &mut all);
    assert!(all.remove("SUMMARY.md"), "mdbook needs it");
    all
}

/// What a page says outside of its examples.
fn prose(text: &str) -> String {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    });
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// The targets of links, `[words](target)`.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// Headings as the part of an address after `#`.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text);
    let headings =
        headings.lines().filter_map(|line| line.strip_prefix('#')).map(|h| h.trim_start_matches('#').trim().to_lowercase());
    let plain = |h: String| h.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-");
    headings.map(plain).collect()
}

#[test]
fn the_summary_lists_every_page_once() {
    let mut listed = links(&read(&source().join("SUMMARY.md")));
    listed.sort();
    let pages: Vec<String> = pages().into_iter().collect();
    assert_eq!(listed, pages, "SUMMARY.md, and the files that there are");
}

#[test]
fn the_examples_of_every_page_are_run() {
    let run: BTreeSet<String> = tidelock_book::PAGES.iter().chain(tidelock_book::ELSEWHERE).map(|p| (*p).to_owned()).collect();
    assert_eq!(run, pages(), "lib.rs, and the files that there are");
    let adapter = read(&source().join("../../../adapters/bevy/src/lib.rs"));
    assert!(adapter.contains("docs/book/src/bevy.md"), "the adapter for Bevy runs the examples of its page");
    for page in pages() {
        let text = read(&source().join(&page));
        for fence in text.lines().filter(|line| line.starts_with("```rust")) {
            assert!(matches!(fence, "```rust" | "```rust,no_run"), "{page}: {fence}: the example is not compiled");
        }
        let not_run = text.lines().filter(|line| *line == "```rust,no_run").count();
        let allowed = usize::from(["getting-started.md", "bevy.md"].contains(&page.as_str()));
        assert!(not_run <= allowed, "{page}: an example is compiled only; programs are, which a test plays with");
    }
}

/// Files that are no pages are linked to where they are for everybody: in the built book there is nothing beside the pages.
const TREE: &str = "https://github.com/tidelock/tidelock/blob/main/";

#[test]
fn links_lead_somewhere() {
    let mut count = 0;
    for page in pages() {
        let path = source().join(&page);
        let text = read(&path);
        for link in links(&text) {
            count += 1;
            if let Some(file) = link.strip_prefix(TREE) {
                assert!(source().join("../../..").join(file).exists(), "{page}: {link}: there is no such file");
            }
            if link.starts_with("https://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            assert!(target.exists(), "{page}: {link} leads nowhere");
            let inside = target.canonicalize().expect("it exists").starts_with(source().canonicalize().expect("a folder"));
            assert!(inside, "{page}: {link} leads out of the book: begin with {TREE}");
            if !anchor.is_empty() {
                assert!(anchors(&read(&target)).contains(anchor), "{page}: {link}: there is no such heading");
            }
        }
    }
    assert!(count >= 30, "links are found: {count}");
}

#[test]
fn every_page_begins_with_what_one_gets() {
    for page in pages() {
        let text = read(&source().join(&page));
        let first: Vec<&str> =
            text.lines().skip(1).skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).collect();
        let first = first.join(" ");
        assert!(
            text.starts_with("# ") && ["You get ", "You see "].iter().any(|w| first.contains(w)),
            "{page} begins with {first:?}"
        );
    }
}

#[test]
fn the_page_of_c_shows_the_program() {
    let program = include_str!("../../../adapters/capi/c/first.c");
    assert!(
        include_str!("../src/c.md").contains(&format!("```c\n{program}```")),
        "c.md shows another program than adapters/capi/c/first.c"
    );
}

/// Compares what stands between two marks of a page with a table, or writes it there.
fn check_table(page: &str, name: &str, table: &str) {
    let path = source().join(page);
    let text = read(&path);
    let (begin, end) = (format!("<!-- {name} begin -->\n"), format!("<!-- {name} end -->"));
    let (before, rest) = text.split_once(&begin).expect("the mark before");
    let (there, after) = rest.split_once(&end).expect("the mark after");
    if there == table {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_BOOK").is_some(),
        "{page}: the table is not up to date; UPDATE_BOOK=1 writes it. It should be\n{table}"
    );
    fs::write(&path, format!("{before}{begin}{table}{end}{after}")).expect("the page can be written");
}

#[test]
fn the_table_of_metrics_is_that_of_the_code() {
    let mut table = String::from("| name | kind | label | what |\n|---|---|---|---|\n");
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let label = if metric.label.is_empty() { String::new() } else { format!("`{}`", metric.label) };
        table += &format!("| `{}` | {kind} | {label} | {} |\n", metric.name, metric.what);
    }
    check_table("watching.md", "metrics", &table);
}

/// A constant of `limits.rs`: name, value in words, number, documentation.
struct Limit {
    name: String,
    value: String,
    number: u128,
    what: String,
}

/// The number that `1 << 20`, `16 * 1024`, `3`, or the name of a constant `before` and something more stands for.
fn evaluate(expression: &str, before: &[Limit]) -> u128 {
    if let Some((name, more)) = expression.split_once('+') {
        let limit = before.iter().find(|limit| limit.name == name.trim());
        return limit.unwrap_or_else(|| panic!("{name:?} in {expression:?}")).number + evaluate(more, before);
    }
    let factor = |s: &str| s.trim().replace('_', "").parse::<u128>().unwrap_or_else(|e| panic!("{s:?} in {expression:?}: {e}"));
    let product = |s: &str| s.split('*').map(factor).product::<u128>();
    let mut parts = expression.split("<<").map(product);
    let first = parts.next().expect("something");
    parts.fold(first, |value, by| value << by)
}

fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).expect("digits")).collect();
    groups.join(" ")
}

fn limits_of_the_code() -> Vec<Limit> {
    let text = read(&source().join("../../../netcore/src/limits.rs"));
    let (mut all, mut words): (Vec<Limit>, _) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(doc) = line.strip_prefix("///") {
            words.push(doc.trim().to_owned());
            continue;
        }
        if let Some(rest) = line.strip_prefix("pub const ") {
            let (name, rest) = rest.split_once(':').expect("a type");
            let (_type, value) = rest.split_once('=').expect("a value");
            let value = value.trim().trim_end_matches(';');
            let time = value.strip_prefix("Duration::from_").and_then(|v| v.trim_end_matches(')').split_once('('));
            let (value, number) = match time {
                Some(("secs", n)) => (format!("{n} s"), evaluate(n, &all) * 1000),
                Some(("millis", n)) => (format!("{n} ms"), evaluate(n, &all)),
                Some((unit, _)) => panic!("{name}: {unit} is not known here"),
                None => (grouped(evaluate(value, &all)), evaluate(value, &all)),
            };
            let what = unlinked(&words.join(" ")).replace("[`", "`").replace("`]", "`");
            all.push(Limit { name: name.to_owned(), value, number, what });
        }
        words.clear();
    }
    all
}

/// `[words](target)` becomes the words.
fn unlinked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (_, behind) = after.split_once(')').unwrap_or(("", after));
        let (text, words) = before.rsplit_once('[').unwrap_or((before, ""));
        out += &format!("{text}{words}");
        rest = behind;
    }
    out + rest
}

#[test]
fn the_table_of_limits_is_that_of_the_code() {
    let all = limits_of_the_code();
    let mut table = String::from("| constant | value | of what |\n|---|--:|---|\n");
    for limit in &all {
        assert!(!limit.what.is_empty(), "{} says nothing", limit.name);
        table += &format!("| `{}` | {} | {} |\n", limit.name, limit.value, limit.what);
    }
    check_table("limits.md", "limits", &table);
    // what is read from the text is what the compiler makes of it
    let is = |name: &str, number: u128| {
        let found = all.iter().find(|limit| limit.name == name).unwrap_or_else(|| panic!("{name} is not found"));
        assert_eq!(found.number, number, "{name}");
    };
    is("MESSAGE_BYTES", limits::MESSAGE_BYTES as u128);
    is("LANE_QUEUE_BYTES", limits::LANE_QUEUE_BYTES as u128);
    is("BLOB_BYTES", limits::BLOB_BYTES as u128);
    is("BANDWIDTH_LEAST", limits::BANDWIDTH_LEAST.into());
    is("ROWS", limits::ROWS as u128);
    is("DEFINITION_CHANGES_BYTES", limits::DEFINITION_CHANGES_BYTES as u128);
    is("COMPONENT_BITS", limits::COMPONENT_BITS as u128);
    is("SESSION_MICROS", limits::SESSION_MICROS.into());
    is("LANE_QUEUE_TIME", limits::LANE_QUEUE_TIME.as_millis());
    is("INPUT_REPEAT", limits::INPUT_REPEAT.as_millis());
    is("FORK_VALUE_BYTES", limits::FORK_VALUE_BYTES as u128);
}
