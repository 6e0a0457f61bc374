//! Draws what a session costs: runs the bench `crowd` along three axes, fits straight lines, and writes SVGs and a table. See the
//! crate's README.

use clap::Parser;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// One picture for each axis: world size at fixed change, change, and guests.
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
    /// Entities, part that changes, guests; and where the point lies on the axis.
    points: Vec<(usize, f64, usize, f64)>,
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

fn axes() -> Vec<Axis> {
    let sizes = [2_000usize, 5_000, 10_000, 20_000, 40_000];
    let parts = [0.0, 0.05, 0.1, 0.25, 0.5, 1.0];
    let guests = [1usize, 4, 16, 32, 64];
    // health changes in proportion to the world: where size alone must count, only positions travel
    let size = |n: usize| (n, 1000.0 / n as f64, 8, n as f64);
    vec![
        Axis {
            file: "cost-size.svg",
            title: "against the size of the world, 1 000 moving, positions alone, 8 guests",
            unit: "entity",
            schema: "points",
            points: sizes.into_iter().map(size).collect(),
        },
        Axis {
            file: "cost-change.svg",
            title: "against how many of 10 000 move, 8 guests",
            unit: "moving entity",
            schema: "full",
            points: parts.into_iter().map(|f| (10_000, f, 8, f * 10_000.0)).collect(),
        },
        Axis {
            file: "cost-guests.svg",
            title: "against guests, 10 000 entities, 1 000 moving",
            unit: "guest",
            schema: "full",
            points: guests.into_iter().map(|m| (10_000, 0.1, m, m as f64)).collect(),
        },
    ]
}

fn field(json: &str, name: &str) -> Option<f64> {
    let rest = json.split_once(&format!("\"{name}\":"))?.1;
    rest[..rest.find([',', '}'])?].parse().ok()
}

/// Runs the bench beside this program once.
fn run(crowd: &Path, schema: &str, at: &(usize, f64, usize, f64), ticks: u32) -> Result<Point, String> {
    let numbers = [at.0.to_string(), at.1.to_string(), at.2.to_string(), ticks.to_string()];
    let names = ["--entities", "--changed", "--guests", "--ticks"];
    let arguments = names.iter().copied().zip(numbers.iter().map(String::as_str)).flat_map(|(name, number)| [name, number]);
    let output = Command::new(crowd).args(arguments).args(["--schema", schema, "--json"]).output();
    let output = output.map_err(|e| format!("{}: {e}; build it first", crowd.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let read = |name| field(&text, name).ok_or_else(|| format!("crowd printed no {name}: {text}"));
    if !output.status.success() {
        return Err(format!("crowd failed at {at:?}: {text}"));
    }
    Ok(Point { x: at.3, host_us: read("server_us")?, guest_us: read("client_us")?, bytes: read("bytes_per_client")? })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(options: &Options, crowd: &Path, axis: &Axis) -> Result<Vec<Point>, String> {
    let mut runs: Vec<Vec<Point>> = vec![Vec::new(); axis.points.len()];
    for _ in 0..options.rounds.max(1) {
        for (at, into) in axis.points.iter().zip(&mut runs) {
            into.push(run(crowd, axis.schema, at, options.ticks)?);
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

fn panel(svg: &mut String, left: f64, curve: &Curve, points: &[Point], unit: &str) -> std::fmt::Result {
    let (name, colour, _, value) = *curve;
    let pairs: Vec<(f64, f64)> = points.iter().map(|p| (p.x, value(p))).collect();
    let line = fit(&pairs);
    let most = |f: fn(&(f64, f64)) -> f64| pairs.iter().map(f).fold(1e-9, f64::max);
    let (right, top) = (most(|p| p.0), most(|p| p.1) * 1.1);
    let at = |x: f64, y: f64| (left + x / right * PANEL.0, ROOM.1 + PANEL.1 - (y / top).clamp(0.0, 1.0) * PANEL.1);
    let (bottom, end) = (ROOM.1 + PANEL.1, left + PANEL.0);
    writeln!(svg, "<text x=\"{left}\" y=\"{:.0}\" font-weight=\"bold\">{name}</text>", ROOM.1 - 24.0)?;
    writeln!(
        svg,
        "<text x=\"{left}\" y=\"{:.0}\">{:.1} + {:.4} per {unit}, R² {:.3}</text>",
        ROOM.1 - 8.0,
        line.at_zero,
        line.slope,
        line.r2
    )?;
    writeln!(svg, "<path d=\"M{left} {} V{bottom} H{end}\" fill=\"none\" stroke=\"#777\"/>", ROOM.1)?;
    for part in [0.0, 0.5, 1.0] {
        let (x, y) = at(part * right, part * top);
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0}</text>", bottom + 16.0, part * right)?;
        writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>", left - 6.0, y + 4.0, part * top)?;
    }
    let (from, to) = (at(0.0, line.at_zero), at(right, line.at_zero + line.slope * right));
    writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-dasharray=\"5 4\"/>",
        from.0, from.1, to.0, to.1
    )?;
    for (x, y) in pairs.iter().map(|(x, y)| at(*x, *y)) {
        writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>")?;
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
        panel(&mut svg, ROOM.0 + i as f64 * (PANEL.0 + ROOM.0), curve, points, axis.unit)?;
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
    for (name, _, unit, value) in CURVES {
        let line = fit(&points.iter().map(|p| (p.x, value(p))).collect::<Vec<_>>());
        let (zero, slope, r2) = (line.at_zero, line.slope, line.r2);
        writeln!(page, "* {name}: {zero:.1} {unit} and {slope:.4} {unit} per {} (R² {r2:.3})", axis.unit)?;
    }
    Ok(())
}

const OPENING: &str = "# What a session costs

Drawn by `cargo run --release -p tidelock-benches --bin plots`, which runs the bench `crowd` (built before, beside it) along three axes.
Medians of CPU time; lines are least squares. Machines differ: slopes and their ratios say more than microseconds. Bytes are exact.
";

fn draw(options: &Options) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let crowd = own.with_file_name(format!("crowd{}", std::env::consts::EXE_SUFFIX));
    let mut page = OPENING.to_owned();
    let write = |file: &str, text: &str| std::fs::write(options.into.join(file), text).map_err(|e| format!("{file}: {e}"));
    for axis in axes() {
        let points = measure(options, &crowd, &axis)?;
        write(axis.file, &picture(&axis, &points).map_err(|e| e.to_string())?)?;
        section(&mut page, &axis, &points).map_err(|e| e.to_string())?;
    }
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
    fn numbers_are_found_in_a_line() {
        let json = "{\"n\":10,\"server_us\":12.5,\"equal\":true}";
        assert_eq!((field(json, "server_us"), field(json, "n"), field(json, "none")), (Some(12.5), Some(10.0), None));
    }
}
