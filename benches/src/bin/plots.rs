//! Draws what a session costs: runs the bench `crowd` along four axes, fits straight lines, and writes SVGs and a table. See the
//! crate's README.

use clap::Parser;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// One picture for each axis: world size at fixed change, blocks at fixed change, change, and guests.
#[derive(Parser)]
struct Options {
    /// Where the pictures and `cost.md` go.
    #[arg(long, default_value = "docs")]
    into: PathBuf,
    /// Runs of each point, in turn; their median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Ticks of a run.
    #[arg(long, default_value_t = 60)]
    ticks: u32,
}

/// An axis: what is varied, and what its slope means.
struct Axis {
    file: &'static str,
    title: &'static str,
    unit: &'static str,
    /// Which components travel.
    schema: &'static str,
    cases: Vec<Case>,
    /// Lines are fitted to the points from here on.
    from: f64,
    /// What is before, and why the line is another one there; nothing if all points count.
    before: &'static str,
}

/// A run, and where it lies on the axis.
#[derive(Clone, Copy)]
struct Case {
    entities: usize,
    moving: usize,
    /// The movers are drawn from so many neighbours.
    within: usize,
    guests: usize,
    x: f64,
}

/// A measured point.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    host_us: f64,
    guest_us: f64,
    bytes: f64,
}

/// A straight line by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fit {
    at_zero: f64,
    slope: f64,
    /// The part of the variance that the line explains.
    r2: f64,
}

fn fit(points: &[(f64, f64)]) -> Fit {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| f(x - mx, y - my)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    let slope = if xx > 0.0 { xy / xx } else { 0.0 };
    let r2 = if xx > 0.0 && yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
    Fit { at_zero: my - slope * mx, slope, r2 }
}

/// Rows of a block, which is what is looked at, and packed, as one.
const BLOCK: f64 = 64.0;

/// How many blocks of a window have movers in them.
fn touched(window: usize, moving: usize) -> f64 {
    let blocks = window as f64 / BLOCK;
    blocks * (1.0 - (1.0 - 1.0 / blocks).powi(moving as i32))
}

fn axes() -> Vec<Axis> {
    // health changes in proportion to the world: where other things must count, only positions travel
    let size = |n: usize| Case { entities: n, moving: 1000, within: 1920, guests: 8, x: n as f64 };
    let block = |n: usize| Case { entities: 10_000, moving: 1000, within: n, guests: 8, x: touched(n, 1000) };
    let part = |n: usize| Case { entities: 10_000, moving: n, within: 10_000, guests: 8, x: n as f64 };
    let guest = |n: usize| Case { entities: 10_000, moving: 1000, within: 10_000, guests: n, x: n as f64 };
    vec![
        Axis {
            file: "cost-size.svg",
            title: "against the size of the world, 1 000 moving among 1 920 neighbours, positions alone, 8 guests",
            unit: "entity",
            schema: "points",
            cases: [2_000, 5_000, 10_000, 20_000, 30_000, 40_000].map(size).to_vec(),
            from: 0.0,
            before: "",
        },
        Axis {
            file: "cost-blocks.svg",
            title: "against the blocks of 64 rows that 1 000 movers are in, 10 000 entities, positions alone, 8 guests",
            unit: "block",
            schema: "points",
            cases: [1_280, 2_560, 3_840, 5_120, 7_680, 10_000].map(block).to_vec(),
            from: 0.0,
            before: "",
        },
        Axis {
            file: "cost-change.svg",
            title: "against how many of 10 000 move, 8 guests",
            unit: "moving entity",
            schema: "full",
            cases: [0, 25, 50, 100, 200, 500, 1_000, 2_500, 5_000, 7_500, 10_000].map(part).to_vec(),
            from: 500.0,
            before: "Below 500, nearly every mover is the first in its block of 64 rows, which costs what a block costs; from 500 on nearly all of the \
                     157 blocks have one, and only rows are added. At 0 nothing changes at all; otherwise 100 have another health in each tick.",
        },
        Axis {
            file: "cost-guests.svg",
            title: "against guests, 10 000 entities, 1 000 moving",
            unit: "guest",
            schema: "full",
            cases: [1, 2, 4, 8, 16, 24, 32, 48, 64].map(guest).to_vec(),
            from: 8.0,
            before: "Up to 8 guests the worlds that run in turn in this one process, and the host's own, still share the processor's caches; \
                     from there on every frame of each begins with cold ones.",
        },
    ]
}

fn field(json: &str, name: &str) -> Option<f64> {
    let rest = json.split_once(&format!("\"{name}\":"))?.1;
    rest[..rest.find([',', '}'])?].parse().ok()
}

/// Runs the bench beside this program once.
fn run(crowd: &Path, schema: &str, case: &Case, ticks: u32) -> Result<Point, String> {
    let changed = (case.moving as f64 / case.entities as f64).to_string();
    let numbers = [case.entities, case.within, case.guests, ticks as usize].map(|n| n.to_string());
    let names = ["--entities", "--within", "--guests", "--ticks"];
    let arguments = names.iter().copied().zip(numbers.iter().map(String::as_str)).flat_map(|(name, number)| [name, number]);
    let output = Command::new(crowd).args(arguments).args(["--changed", &changed, "--schema", schema, "--json"]).output();
    let output = output.map_err(|e| format!("{}: {e}; build it first", crowd.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let read = |name| field(&text, name).ok_or_else(|| format!("crowd printed no {name}: {text}"));
    if !output.status.success() {
        return Err(format!("crowd failed at {}: {text}", case.x));
    }
    Ok(Point { x: case.x, host_us: read("server_us")?, guest_us: read("client_us")?, bytes: read("bytes_per_client")? })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(options: &Options, crowd: &Path, axis: &Axis) -> Result<Vec<Point>, String> {
    let mut runs: Vec<Vec<Point>> = vec![Vec::new(); axis.cases.len()];
    for _ in 0..options.rounds.max(1) {
        for (case, into) in axis.cases.iter().zip(&mut runs) {
            into.push(run(crowd, axis.schema, case, options.ticks)?);
        }
    }
    let middle = |runs: &Vec<Point>, f: fn(&Point) -> f64| median(runs.iter().map(f).collect());
    let point = |runs: &Vec<Point>| Point {
        x: runs[0].x,
        host_us: middle(runs, |p| p.host_us),
        guest_us: middle(runs, |p| p.guest_us),
        bytes: middle(runs, |p| p.bytes),
    };
    Ok(runs.iter().map(point).collect())
}

/// What is drawn of a point: its name, its colour, its unit.
type Curve = (&'static str, &'static str, &'static str, fn(&Point) -> f64);

const CURVES: [Curve; 3] = [
    ("host, µs per tick", "#1f5fa8", "µs", |p| p.host_us),
    ("guest, µs per tick", "#b5541c", "µs", |p| p.guest_us),
    ("bytes per guest and tick", "#3a7d44", "bytes", |p| p.bytes),
];

/// Size of one of a picture's panels, and the room around it.
const PANEL: (f64, f64) = (240.0, 200.0);
const ROOM: (f64, f64) = (64.0, 48.0);

/// What a curve is, from a point on.
enum Shape {
    Line(Fit),
    /// It does not depend: the mean, and by how much of it the farthest point is off.
    Flat {
        mean: f64,
        off: f64,
    },
}

/// What rises by less than this part of its mean, from end to end, is flat: what is left is noise, of which no line explains anything.
const FLAT: f64 = 0.15;

/// The shape of the points at or after `from`.
fn shape(pairs: &[(f64, f64)], from: f64) -> Shape {
    let pairs: Vec<_> = pairs.iter().copied().filter(|p| p.0 >= from).collect();
    let line = fit(&pairs);
    let mean = pairs.iter().map(|p| p.1).sum::<f64>() / pairs.len() as f64;
    let end = |f: fn(f64, f64) -> f64| pairs.iter().map(|p| p.0).reduce(f).unwrap_or(0.0);
    if (line.slope * (end(f64::max) - end(f64::min))).abs() > FLAT * mean {
        return Shape::Line(line);
    }
    Shape::Flat { mean, off: pairs.iter().map(|p| (p.1 / mean.max(1e-9) - 1.0).abs()).fold(0.0, f64::max) }
}

impl Shape {
    fn at(&self, x: f64) -> f64 {
        match self {
            Self::Line(line) => line.at_zero + line.slope * x,
            Self::Flat { mean, .. } => *mean,
        }
    }

    /// In words; `of`: what it is measured in.
    fn words(&self, of: &str, unit: &str) -> String {
        match self {
            Self::Line(Fit { at_zero, slope, r2 }) => format!("{at_zero:.1} {of} and {slope:.4} {of} per {unit}, R² {r2:.3}"),
            Self::Flat { mean, off } => format!("flat, {mean:.1} {of}, within {:.0} %", off * 100.0),
        }
    }
}

fn panel(svg: &mut String, left: f64, curve: &Curve, points: &[Point], axis: &Axis) -> std::fmt::Result {
    let (name, colour, of, value) = *curve;
    let pairs: Vec<(f64, f64)> = points.iter().map(|p| (p.x, value(p))).collect();
    let line = shape(&pairs, axis.from);
    let most = |f: fn(&(f64, f64)) -> f64| pairs.iter().map(f).fold(1e-9, f64::max);
    let (right, top) = (most(|p| p.0), most(|p| p.1) * 1.1);
    let at = |x: f64, y: f64| (left + x / right * PANEL.0, ROOM.1 + PANEL.1 - (y / top).clamp(0.0, 1.0) * PANEL.1);
    let (bottom, end) = (ROOM.1 + PANEL.1, left + PANEL.0);
    writeln!(svg, "<text x=\"{left}\" y=\"{:.0}\" font-weight=\"bold\">{name}</text>", ROOM.1 - 24.0)?;
    writeln!(svg, "<text x=\"{left}\" y=\"{:.0}\" font-size=\"9.5\">{}</text>", ROOM.1 - 8.0, line.words(of, axis.unit))?;
    writeln!(svg, "<path d=\"M{left} {} V{bottom} H{end}\" fill=\"none\" stroke=\"#777\"/>", ROOM.1)?;
    for part in [0.0, 0.5, 1.0] {
        let (x, y) = at(part * right, part * top);
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0}</text>", bottom + 16.0, part * right)?;
        writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>", left - 6.0, y + 4.0, part * top)?;
    }
    let (from, to) = (at(axis.from, line.at(axis.from)), at(right, line.at(right)));
    writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-dasharray=\"5 4\"/>",
        from.0, from.1, to.0, to.1
    )?;
    for pair in &pairs {
        let (x, y) = at(pair.0, pair.1);
        let fill = if pair.0 < axis.from { "none" } else { colour };
        writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{fill}\" stroke=\"{colour}\"/>")?;
    }
    Ok(())
}

fn picture(axis: &Axis, points: &[Point]) -> Result<String, std::fmt::Error> {
    let (width, height) = ((PANEL.0 + ROOM.0) * CURVES.len() as f64 + 24.0, PANEL.1 + ROOM.1 + 56.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (i, curve) in CURVES.iter().enumerate() {
        panel(&mut svg, ROOM.0 + i as f64 * (PANEL.0 + ROOM.0), curve, points, axis)?;
    }
    writeln!(svg, "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>", width / 2.0, height - 14.0, axis.title)?;
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn section(page: &mut String, axis: &Axis, points: &[Point]) -> std::fmt::Result {
    writeln!(page, "\n## Cost {}\n\n![Cost {}]({})\n", axis.title, axis.title, axis.file)?;
    writeln!(page, "| {} | host µs | guest µs | bytes per guest |\n|--:|--:|--:|--:|", axis.unit)?;
    for p in points {
        writeln!(page, "| {:.0} | {:.0} | {:.0} | {:.0} |", p.x, p.host_us, p.guest_us, p.bytes)?;
    }
    page.push('\n');
    if axis.from > 0.0 {
        writeln!(page, "Fitted from {:.0} on. {}\n", axis.from, axis.before)?;
    }
    for (name, _, of, value) in CURVES {
        let pairs: Vec<_> = points.iter().map(|p| (p.x, value(p))).collect();
        writeln!(page, "* {name}: {}", shape(&pairs, axis.from).words(of, axis.unit))?;
    }
    Ok(())
}

/// The system's load, where it tells.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|n| !n.is_empty()).unwrap_or("unknown").to_owned()
}

const OPENING: &str = "# What a session costs

Drawn by `cargo run --release -p tidelock-benches --bin plots`, which runs the bench `crowd` (built before, beside it) along four axes.
Medians of CPU time; lines are least squares through the filled points. What rises by less than 15 % of its mean from end to end is called flat,
with how far the farthest point is off. Machines differ: slopes and their ratios say more than microseconds. Bytes are exact.
";

fn draw(options: &Options) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let crowd = own.with_file_name(format!("crowd{}", std::env::consts::EXE_SUFFIX));
    let (mut page, before) = (OPENING.to_owned(), load());
    let write = |file: &str, text: &str| std::fs::write(options.into.join(file), text).map_err(|e| format!("{file}: {e}"));
    for axis in axes() {
        let points = measure(options, &crowd, &axis)?;
        write(axis.file, &picture(&axis, &points).map_err(|e| e.to_string())?)?;
        section(&mut page, &axis, &points).map_err(|e| e.to_string())?;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (rounds, ticks) = (options.rounds, options.ticks);
    let text = format!(
        "\nMedians of {rounds} runs of {ticks} ticks, {processors} processors; the load when it began was {before}, at the end {}.\n",
        load()
    );
    page.push_str(&text);
    write("cost.md", &page)
}

fn main() -> ExitCode {
    match draw(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let line = fit(&[(0.0, 3.0), (2.0, 7.0), (5.0, 13.0)]);
        assert!((line.at_zero - 3.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9 && (line.r2 - 1.0).abs() < 1e-9);
        let rough = fit(&[(0.0, 0.0), (1.0, 2.0), (2.0, 0.0)]);
        assert_eq!((rough.slope, rough.r2), (0.0, 0.0));
    }

    #[test]
    fn what_is_before_the_line_does_not_bend_it_and_noise_is_no_line() {
        let bent: Vec<_> = [(0.0, 0.0), (1.0, 50.0), (2.0, 60.0), (4.0, 80.0), (8.0, 120.0)].to_vec();
        let Shape::Line(line) = shape(&bent, 1.0) else { panic!("it rises") };
        assert!((line.at_zero - 40.0).abs() < 1e-9 && (line.slope - 10.0).abs() < 1e-9 && line.r2 > 0.999);
        let Shape::Line(line) = shape(&bent, 0.0) else { panic!("it rises") };
        assert!(line.r2 < 0.95);
        let Shape::Flat { mean, off } = shape(&[(1.0, 99.0), (2.0, 102.0), (9.0, 99.0)], 0.0) else { panic!("it does not rise") };
        assert!((mean - 100.0).abs() < 1e-9 && (off - 0.02).abs() < 1e-9);
    }

    #[test]
    fn blocks_that_movers_are_in() {
        assert!((touched(640, 1000) - 10.0).abs() < 1e-9);
        assert!((touched(64_000, 1000) - 632.3).abs() < 0.1);
    }

    #[test]
    fn numbers_are_found_in_a_line() {
        let json = "{\"n\":10,\"server_us\":12.5,\"equal\":true}";
        assert_eq!((field(json, "server_us"), field(json, "n"), field(json, "none")), (Some(12.5), Some(10.0), None));
    }
}
